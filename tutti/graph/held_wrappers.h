// The interface through which the stages of wrappers inform a trace, which is below them.
#pragma once

#include <string>

#include "tutti/core/symint.h"

namespace tutti {
class Attrs;
struct OpCall;
}  // namespace tutti

namespace tutti::graph {

// Call it for each op on wrappers. A trace on this thread notes those that the function holds, because they may be
// replaced and have gradients; without a trace it does nothing.
void meet_wrappers(const OpCall& call);

// Whether a trace on this thread has sizes that are symbols. The functions below are for such a trace; they record
// nothing.
bool traces_symbols();
// The attrs with the sizes of the traced call in the place of symbols.
Attrs attrs_as_called(const Attrs& attrs);
// The same with sizes that do not depend on the traced call: what is chosen by them is chosen in every trace of a
// function.
Attrs attrs_for_choices(const Attrs& attrs);
int64_t size_for_choices(SymInt size);
// Gives up the symbols: the function is traced anew for the sizes of each call.
[[noreturn]] void refuse_symbols(const std::string& reason);

}  // namespace tutti::graph
