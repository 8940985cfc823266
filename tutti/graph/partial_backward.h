// Backwards of a function whose results were used otherwise than the trace of its backward has it.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tutti/plan/executable.h"
#include "tutti/plan/passes/more_cotangents.h"

namespace tutti::graph {

// The cotangents of one result that came from outside of the function, where they are not summed before.
struct Arrived {
  bool in_front = false;  // one stands before the consumers inside the function
  int32_t behind = 1;     // and so many behind them
  friend auto operator<=>(const Arrived&, const Arrived&) = default;
};

// Makes one for each way in which results are used, and keeps it. Any thread; who needs one that another thread makes
// waits.
class PartialBackwards {
 public:
  // cotangents: per result its given buffer in `graph`, the backward of all of them, or -1 where that reads none;
  // sources: how many the graph has.
  PartialBackwards(Graph graph, std::vector<AddedCotangent> cotangents, int32_t sources, BuildOptions options)
      : graph_(std::move(graph)), cotangents_(std::move(cotangents)), sources_(sources), options_(std::move(options)) {}

  struct Partial {
    std::unique_ptr<const Executable> executable;
    std::vector<bool> needs_zeros;  // per undefined cotangent: some op takes it as zeros
  };
  // Gradients that lead to undefined cotangents only are undefined. What arrived beyond the first one behind has the
  // sources after those of the graph: per result the one in front, then the others.
  const Partial& of(const std::vector<Arrived>& arrived) const;

 private:
  Partial make(const std::vector<Arrived>& arrived) const;

  const Graph graph_;
  const std::vector<AddedCotangent> cotangents_;
  const int32_t sources_;
  const BuildOptions options_;
  mutable std::mutex mutex_;
  mutable std::map<std::vector<Arrived>, Partial> made_;  // its entries stay where they are
};

}  // namespace tutti::graph
