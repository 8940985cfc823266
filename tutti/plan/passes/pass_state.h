// The state that the passes of the pipeline work on.
#pragma once

#include <vector>

#include "tutti/plan/build_options.h"
#include "tutti/plan/step.h"

namespace tutti::graph {

// The function on its way from a graph to steps. Each form is made of the one before it, which stays: groups and steps
// name nodes of the graph by their places.
struct PassState {
  Graph graph;
  const BuildOptions& options;
  std::vector<Group> groups = {};  // empty before pass fuse
  std::vector<Step> steps = {};    // empty before pass make_steps
  const char* graph_key = "";      // names the graph in traces; set by pass name_lines
  ExecutableStatistics statistics = {};
};

}  // namespace tutti::graph
