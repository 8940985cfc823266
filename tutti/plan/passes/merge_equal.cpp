#include "tutti/plan/passes/merge_equal.h"

#include <algorithm>
#include <map>

#include "tutti/core/hash.h"
#include "tutti/plan/passes/pass_state.h"

namespace tutti::graph {
namespace {

uint64_t hash_of(const Node& node) {
  uint64_t h = reinterpret_cast<uintptr_t>(node.op) ^ node.origin.region;
  const auto mix = [&](uint64_t v) { h = mix_hash(h, v); };
  mix(node.attrs.hash());
  for (const Value& v : node.inputs) {
    mix(static_cast<uint64_t>(v.buffer) << 32 | static_cast<uint64_t>(static_cast<uint32_t>(v.version)));
    mix(static_cast<uint64_t>(v.offset));
    for (const int64_t n : v.sizes) mix(static_cast<uint64_t>(n));
  }
  return place_of(h);
}

bool is_same_call(const Node& a, const Node& b) {
  return a.op == b.op && a.origin.region == b.origin.region && a.inputs == b.inputs && a.after == b.after &&
         a.control == b.control && a.attrs == b.attrs;
}

}  // namespace

void merge_equal(PassState& state) {
  Graph& graph = state.graph;
  std::vector<int32_t> same_as(graph.buffers.size());
  for (size_t b = 0; b < same_as.size(); ++b) same_as[b] = static_cast<int32_t>(b);
  std::vector<bool> is_result(graph.buffers.size(), false);  // two results never share memory that ops did not share
  for (const Value& v : graph.results) {
    if (v.buffer >= 0) is_result[static_cast<size_t>(v.buffer)] = true;
  }
  const auto is_fixed = [&](const Value& v) {
    return graph.buffers[static_cast<size_t>(v.buffer)].versions == 1 && !is_result[static_cast<size_t>(v.buffer)];
  };
  std::multimap<uint64_t, size_t> seen;
  std::vector<Node> kept;
  for (Node& node : graph.nodes) {
    for (std::vector<Value>* list : {&node.inputs, &node.after}) {
      for (Value& v : *list) v.buffer = same_as[static_cast<size_t>(v.buffer)];
    }
    const bool may_merge = !has_effect(node) && std::all_of(node.outputs.begin(), node.outputs.end(), is_fixed);
    const uint64_t hash = may_merge ? hash_of(node) : 0;
    bool merged = false;
    if (may_merge) {
      for (auto [it, end] = seen.equal_range(hash); it != end && !merged; ++it) {
        const Node& other = kept[it->second];
        if (!is_same_call(other, node)) continue;
        for (size_t k = 0; k < node.outputs.size(); ++k)
          same_as[static_cast<size_t>(node.outputs[k].buffer)] = other.outputs[k].buffer;
        merged = true;
      }
      if (!merged) seen.emplace(hash, kept.size());
    }
    if (!merged) kept.push_back(std::move(node));
  }
  state.statistics.merged = static_cast<int64_t>(graph.nodes.size() - kept.size());
  graph.nodes = std::move(kept);
}

}  // namespace tutti::graph
