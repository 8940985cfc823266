// What evaluating a node's recipe costs: the estimate by which kernels are joined or kept apart.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/plan/graph.h"

namespace tutti::graph {

// A walk over the elements of a row, or the one in which the outputs are written.
struct RecipeWalk {
  double work = 0;     // for each element, in additions
  uint32_t reads = 0;  // bit i: input i is read for each element
};

struct RecipeCost {
  std::vector<RecipeWalk> reductions;  // the walks before the outputs, in their order
  RecipeWalk outputs;                  // of the outputs that have an element for each point
};

// node.op has a recipe that kernels can be made of. per_row: its outputs with one element for each row.
RecipeCost recipe_cost(const Node& node, const Graph& graph, uint32_t per_row);

}  // namespace tutti::graph
