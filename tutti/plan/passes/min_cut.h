// The cheapest set of vertices that separates a source from a sink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::graph {

// A directed graph whose vertices cost something to cut and whose edges cannot be cut. Source and sink are not
// vertices.
class MinCut {
 public:
  explicit MinCut(size_t vertices);
  void set_cost(size_t vertex, int64_t cost);  // non-negative; 0 by default
  void add_edge(size_t from, size_t to);
  void add_source(size_t vertex);  // adds an edge from the source to the vertex
  void add_sink(size_t vertex);    // adds an edge from the vertex to the sink

  // On which side a vertex is when the cheapest set of vertices is cut; among several such sets, the one nearest the
  // sink is used.
  enum class Side : uint8_t { source, cut, sink };
  std::vector<Side> run();
  // The cost of the last cut.
  int64_t cost() const { return cost_; }

 private:
  struct Edge {
    int32_t to;
    int64_t room;
  };
  void connect(int32_t from, int32_t to, int64_t room);
  bool find_levels();
  int64_t push(int32_t from, int64_t flow);

  std::vector<Edge> edges_;  // each followed by the one back
  std::vector<std::vector<int32_t>> out_;
  std::vector<int32_t> level_;
  std::vector<size_t> next_;
  int64_t cost_ = 0;
};

}  // namespace tutti::graph
