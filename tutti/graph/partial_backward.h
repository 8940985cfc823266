// Backwards of a function of whose results only some were used.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tutti/graph/executable.h"

namespace tutti::graph {

// Makes one for each choice of results that comes, and keeps it. Any thread; who needs one that another thread makes waits.
class PartialBackwards {
 public:
  // buffers: per cotangent its given buffer in `graph`, the backward of all of them; -1 where that reads none.
  PartialBackwards(Graph graph, std::vector<int32_t> buffers, BuildOptions options)
      : graph_(std::move(graph)), buffers_(std::move(buffers)), options_(std::move(options)) {}

  struct Partial {
    std::unique_ptr<const Executable> executable;
    std::vector<bool> needs_zeros;  // per undefined cotangent: some op takes it as zeros
  };
  // Gradients that lead to undefined cotangents only are undefined.
  const Partial& of(const std::vector<bool>& defined) const;

 private:
  Partial make(const std::vector<bool>& defined) const;

  const Graph graph_;
  const std::vector<int32_t> buffers_;
  const BuildOptions options_;
  mutable std::mutex mutex_;
  mutable std::map<std::vector<bool>, Partial> made_;  // its entries stay where they are
};

}  // namespace tutti::graph
