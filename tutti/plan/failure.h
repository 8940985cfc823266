// Errors while a graph runs.
//
// A call of a graph has the same guarantee as an eager run: when an op fails, the writes to memory of the caller that
// precede it in program order have happened, and those that follow it have not. The passes preserve this by means of
// Node::fails (dependencies.h, remove_unused.h, fuse.h, batch.h).
#pragma once

#include "tutti/plan/graph.h"

namespace tutti::graph {

// Whether the data in the operands can make the call throw: because it checks them (OpDef::check), accesses elements by
// index, or divides integers.
Fails fails_of(const OpCall& call, std::span<const Value> outputs);
// The same for a control flow node.
Fails fails_of(const ControlBody& body, std::span<const Value> inputs);

// Whether the node can throw because of the data it reads or because of other ranks.
inline bool can_fail(const Node& node) { return node.fails != Fails::never || is_ordered(node); }
// Whether the node is run by a step of its own, whose code may throw any exception.
bool runs_by_itself(const Node& node);
// Whether the node writes or releases memory that exists before the call.
bool writes_given(const Node& node, const Graph& graph);

// "floordiv at loss.cpp:12 (loss)", as far as the place is known.
std::string with_place(const char* op, const Origin& origin);

// Rethrows the exception being handled with the same class. If that is exactly one of the classes in core/error.h, op
// and place are appended to the text.
[[noreturn]] void rethrow_with_place(const char* op, const Origin& origin);

}  // namespace tutti::graph
