// Pass: a backward for a result that has consumers inside the function and several outside.
#pragma once

#include "tutti/plan/graph.h"

namespace tutti::graph {

// A given buffer that holds the cotangent of a result, as the trace has it: it is added behind those of `consumers` ops
// of the function, and nothing else reads it.
struct AddedCotangent {
  int32_t buffer = -1;
  int32_t consumers = 0;
};

// Whether the graph adds it so, all of one dtype.
bool is_added_last(const Graph& graph, const AddedCotangent& cotangent);

// Adds further ones: if `in_front`, one before those of the function's own ops, and `behind` of them behind the one
// that is there, one after the other. They are given buffers with the next sources, from `source` on, in this order.
// Returns the graph's buffers that hold them.
std::vector<int32_t> add_cotangents(Graph& graph, const AddedCotangent& cotangent, bool in_front, int32_t behind,
                                    int32_t source);

}  // namespace tutti::graph
