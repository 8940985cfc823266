// What can go wrong while a graph runs, and what an error then says.
//
// A call of a graph promises what a run op by op gives: when an op fails, the writes before it in program order to memory of
// the caller have happened and those after it have not. The passes keep that by Node::fails (dependencies.h, remove_unused.h,
// fuse.h, batch.h).
#pragma once

#include "tutti/graph/graph.h"

namespace tutti::graph {

// Whether what the operands hold can make the call throw: it looks at them (OpDef::check), picks by an index, or divides
// integers.
Fails fails_of(const OpCall& call, std::span<const Value> outputs);
// The same of a node that decides while it runs.
Fails fails_of(const ControlBody& body, std::span<const Value> inputs);

// Whether the node can throw for what it reads, or because of other ranks.
inline bool can_fail(const Node& node) { return node.fails != Fails::never || is_ordered(node); }
// Whether a step of its own runs the node, whose code may throw whatever it likes.
bool runs_by_itself(const Node& node);
// Whether the node writes memory that exists before the call, or gives it back.
bool writes_given(const Node& node, const Graph& graph);

// "floordiv at loss.cpp:12 (loss)", as far as the place is known.
std::string with_place(const char* op, const Origin& origin);

// Throws the exception that is being handled again, with its class. When that is one of the kinds of core/error.h and no
// class of its own, its text goes on with op and place.
[[noreturn]] void rethrow_with_place(const char* op, const Origin& origin);

}  // namespace tutti::graph
