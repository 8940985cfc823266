// What the stages of wrappers tell a trace, which is below them.
#pragma once

namespace tutti {
struct OpCall;
}  // namespace tutti

namespace tutti::graph {

// Call it for each op on wrappers. A trace on this thread notes those that the function holds, because they may be replaced and have
// gradients; without a trace it does nothing.
void meet_wrappers(const OpCall& call);

}  // namespace tutti::graph
