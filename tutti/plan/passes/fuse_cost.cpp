#include "tutti/plan/passes/fuse_cost.h"

#include <algorithm>

namespace tutti::graph {
namespace {

// Nodes of a kernel by their places in it.
using Places = uint64_t;
constexpr size_t kMostPlaces = 64;

constexpr int32_t kResult = -1;

// Writing an element of a tensor of so many bytes and reading it again, in additions: from the caches of a core, from
// the cache that the cores share, from memory.
double memory_work(int64_t bytes) { return bytes <= (int64_t{1} << 19) ? 4 : bytes <= (int64_t{1} << 22) ? 15 : 50; }

// Starting one kernel more, in additions.
constexpr double kStart = 16000;

double elements_of(const Space& space) {
  double count = 1;
  for (const int64_t size : space.sizes) count *= static_cast<double>(size);
  return count;
}

}  // namespace

FuseCost::FuseCost(const Graph& graph, const std::vector<std::optional<NodeSpace>>& spaces)
    : graph_(graph), spaces_(spaces), costs_(graph.nodes.size()) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const Value& v : graph.nodes[n].inputs) readers_[{v.buffer, v.version}].push_back(static_cast<int32_t>(n));
  }
  for (const Value& v : graph.results) readers_[{v.buffer, v.version}].push_back(kResult);
}

const RecipeCost& FuseCost::cost_of(int32_t n) {
  const auto i = static_cast<size_t>(n);
  if (!costs_[i]) costs_[i] = recipe_cost(graph_.nodes[i], graph_, spaces_[i]->per_row);
  return *costs_[i];
}

bool FuseCost::is_read_outside(int32_t n, std::span<const int32_t> members) const {
  for (const Value& v : graph_.nodes[static_cast<size_t>(n)].outputs) {
    const auto readers = readers_.find({v.buffer, v.version});
    if (readers == readers_.end()) continue;
    for (const int32_t reader : readers->second) {
      if (std::find(members.begin(), members.end(), reader) == members.end()) return true;
    }
  }
  return false;
}

double FuseCost::work_of(std::span<const int32_t> members, const Space& space) {
  // What is computed for each element to have the elements of each node.
  std::vector<Places> chains(members.size(), 0);
  std::vector<double> works(members.size(), 0);
  std::map<std::pair<int32_t, int32_t>, size_t> made;
  const auto work_along = [&](Places chain) {
    double work = 0;
    for (size_t m = 0; m < members.size(); ++m) work += chain >> m & 1 ? works[m] : 0;
    return work;
  };
  double total = 0;
  Places outputs = 0;
  for (size_t m = 0; m < members.size(); ++m) {
    const Node& node = graph_.nodes[static_cast<size_t>(members[m])];
    const NodeSpace& own = *spaces_[static_cast<size_t>(members[m])];
    if (is_per_row(own, space)) continue;
    const RecipeCost& cost = cost_of(members[m]);
    const auto chain_of = [&](const RecipeWalk& walk) {
      Places chain = 0;
      for (size_t i = 0; i < node.inputs.size() && i < 32; ++i) {
        if ((walk.reads >> i & 1) == 0) continue;
        const auto from = made.find({node.inputs[i].buffer, node.inputs[i].version});
        if (from != made.end()) chain |= chains[from->second];
      }
      return chain;
    };
    for (const RecipeWalk& walk : cost.reductions) total += walk.work + work_along(chain_of(walk));
    works[m] = cost.outputs.work;
    chains[m] = chain_of(cost.outputs) | Places{1} << m;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if ((own.per_row >> k & 1) == 0) made[{node.outputs[k].buffer, node.outputs[k].version}] = m;
    }
    const bool has_elements = node.outputs.size() < 32 && own.per_row + 1 != uint64_t{1} << node.outputs.size();
    if (has_elements && is_read_outside(members[m], members)) outputs |= chains[m];
  }
  return total + work_along(outputs);
}

bool FuseCost::pays(std::span<const int32_t> members, int32_t n, const Space& space) {
  if (members.size() >= kMostPlaces) return false;
  std::vector<int32_t> together(members.begin(), members.end());
  together.push_back(n);
  const int32_t alone[] = {n};
  const double repeated = work_of(together, space) - work_of(members, space) - work_of(alone, space);
  if (repeated <= 0) return true;
  double saved = kStart / std::max(elements_of(space), 1.0);
  for (const Value& v : graph_.nodes[static_cast<size_t>(n)].inputs) {
    const bool is_made = std::any_of(members.begin(), members.end(), [&](int32_t m) {
      const auto& outputs = graph_.nodes[static_cast<size_t>(m)].outputs;
      return std::any_of(outputs.begin(), outputs.end(),
                         [&](const Value& o) { return o.buffer == v.buffer && o.version == v.version; });
    });
    if (is_made) saved += memory_work(static_cast<int64_t>(elements_of(space)) * itemsize(v.dtype));
  }
  return repeated <= saved;
}

}  // namespace tutti::graph
