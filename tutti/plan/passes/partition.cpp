#include "tutti/plan/passes/partition.h"

#include <algorithm>
#include <map>
#include <set>

#include "tutti/plan/node_call.h"
#include "tutti/plan/passes/attach.h"
#include "tutti/plan/passes/live_peak.h"
#include "tutti/plan/passes/min_cut.h"
#include "tutti/plan/passes/pass_state.h"
#include "tutti/plan/recipe_cost.h"

namespace tutti::graph {
namespace {

using Side = MinCut::Side;

// Work of a node, in flops: a byte to or from memory takes the time of about ten.
double work_of(const Node& node, const Graph& graph) {
  constexpr double kFlopsPerByte = 10;
  const Cost cost = cost_of(NodeCall(node, graph).call);
  return cost.flops + kFlopsPerByte * cost.bytes;
}

int64_t bytes_of(const std::vector<Value>& values) {
  int64_t bytes = 0;
  for (const Value& v : values) bytes += numel_of(v.sizes) * itemsize(v.dtype);
  return bytes;
}

// Additions for each element of a row kernel above which it is not nearly free. Norms are below, softmaxes above.
constexpr double kFreeWork = 20;

double work_of_rows(const Node& node, const Graph& graph) {
  const RecipeCost cost = recipe_cost(node, graph, 0);
  double work = cost.outputs.work;
  for (const RecipeWalk& walk : cost.reductions) work += walk.work;
  return work;
}

Recompute facet_of(const Node& node, const Graph& graph) {
  const OpDef& op = *node.op;
  if (node.control || has_effect(node)) return Recompute::never;
  if (std::any_of(std::begin(op.becomes), std::end(op.becomes), [](int8_t b) { return b >= 0; }))
    return Recompute::never;
  if (op.recompute != Recompute::by_kind) return op.recompute;
  if (op.recipe.build == nullptr) return Recompute::never;
  if (!has_kernel_recipe(op)) return Recompute::costly;
  if (op.recipe.kind == codegen::LoopKind::pointwise) return Recompute::cheap;
  // A row that shrinks is read in full for a few bytes.
  if (bytes_of(node.inputs) > 4 * bytes_of(node.outputs)) return Recompute::never;
  return op.recipe.kind == codegen::LoopKind::row && work_of_rows(node, graph) > kFreeWork ? Recompute::costly
                                                                                           : Recompute::cheap;
}

class Partitioner {
 public:
  Partitioner(Graph& graph, const PartitionOptions& options, const BackwardPart& backward)
      : graph_(graph),
        options_(options),
        backward_(backward),
        maker_(graph.buffers.size(), -1),
        weight_(graph.buffers.size(), 0),
        read_late_(graph.buffers.size(), false),
        must_keep_(graph.buffers.size(), false),
        copy_(graph.buffers.size(), -1) {}

  PartitionStatistics run() {
    find_sides();
    if (std::find(read_late_.begin(), read_late_.end(), true) == read_late_.end()) return {};
    find_classes();
    choose();
    rewrite(graph_);
    return statistics_;
  }

 private:
  bool is_early(int32_t buffer) const { return buffer >= 0 && maker_[static_cast<size_t>(buffer)] >= 0; }

  void find_sides() {
    const size_t count = graph_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      const Node& node = graph_.nodes[n];
      late_.push_back(backward_.first_node ? n >= *backward_.first_node : node.origin.phase == TracePhase::backward);
      for (const Value& v : node.outputs) {
        if (graph_.buffers[static_cast<size_t>(v.buffer)].kind != Buffer::Kind::made) continue;
        if (v.version > 0) continue;
        if (late_[n]) made_late_.insert(v.buffer);
        else maker_[static_cast<size_t>(v.buffer)] = static_cast<int32_t>(n);
      }
    }
    for (size_t b = 0; b < weight_.size(); ++b) weight_[b] = graph_.buffers[b].nbytes;
    if (!backward_.runs_later) {
      // Results exist until the call ends, whoever reads them.
      for (const Value& v : graph_.results) {
        if (v.buffer >= 0) weight_[static_cast<size_t>(v.buffer)] = 0;
      }
    }
    const auto read = [&](const Value& v) {
      if (is_early(v.buffer)) read_late_[static_cast<size_t>(v.buffer)] = true;
    };
    for (size_t n = 0; n < count; ++n) {
      if (!late_[n]) continue;
      for (const auto* list : {&graph_.nodes[n].inputs, &graph_.nodes[n].outputs}) {
        for (const Value& v : *list) read(v);
      }
      // What a node writes in place is the forward's own memory.
      for (const Value& v : graph_.nodes[n].outputs) {
        if (is_early(v.buffer)) must_keep_[static_cast<size_t>(v.buffer)] = true;
      }
    }
    for (const Value& v : backward_.results) {
      read(v);
      if (is_early(v.buffer)) must_keep_[static_cast<size_t>(v.buffer)] = true;
    }
    for (size_t b = 0; b < weight_.size(); ++b) statistics_.read_bytes += read_late_[b] ? weight_[b] : 0;
  }

  // Whether `v` can be read anywhere in the backward.
  bool stays(const Value& v, const std::vector<int32_t>& last_write, const std::vector<bool>& given_read) const {
    const auto b = static_cast<size_t>(v.buffer);
    if (made_late_.contains(v.buffer)) return false;
    if (backward_.runs_later && graph_.buffers[b].kind == Buffer::Kind::given && !given_read[b]) return false;
    return v.version >= last_write[b];
  }

  void find_classes() {
    const size_t count = graph_.nodes.size(),
                 last_late = static_cast<size_t>(std::find(late_.rbegin(), late_.rend(), true).base() - late_.begin());
    std::vector<int32_t> last_write(graph_.buffers.size(), 0);  // version, up to the end of the backward
    std::vector<bool> given_read(graph_.buffers.size(), false), read_in_memory(graph_.buffers.size(), false);
    std::vector<int32_t> first_operand_of(graph_.buffers.size(), 0);  // so many products
    for (size_t n = 0; n < last_late; ++n) {
      const Node& node = graph_.nodes[n];
      for (const Value& v : node.outputs) last_write[static_cast<size_t>(v.buffer)] = v.version;
      if (!late_[n]) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const auto b = static_cast<size_t>(node.inputs[i].buffer);
        given_read[b] = true;
        if (has_kernel_recipe(*node.op)) continue;
        if (i == 0 && AttachedGroups::works_in_blocks(node)) ++first_operand_of[b];
        else read_in_memory[b] = true;
      }
    }
    class_.assign(count, Recompute::never);
    for (size_t n = 0; n < count; ++n) {
      const Node& node = graph_.nodes[n];
      const auto is_fixed = [&](const Value& v) {
        const Buffer& b = graph_.buffers[static_cast<size_t>(v.buffer)];
        return b.kind == Buffer::Kind::made && b.versions == 1 && !must_keep_[static_cast<size_t>(v.buffer)];
      };
      if (late_[n] || !std::all_of(node.outputs.begin(), node.outputs.end(), is_fixed)) continue;
      if (!std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](const Value& v) { return stays(v, last_write, given_read); }))
        continue;
      class_[n] = facet_of(node, graph_);
      // Written to memory again, it saves no traffic; in the prologue of one product it is not.
      const bool in_memory = std::any_of(node.outputs.begin(), node.outputs.end(), [&](const Value& v) {
        const auto b = static_cast<size_t>(v.buffer);
        return read_in_memory[b] ||
               first_operand_of[b] > (node.op->recipe.kind == codegen::LoopKind::pointwise ? 1 : 0);
      });
      if (class_[n] == Recompute::cheap && in_memory) class_[n] = Recompute::costly;
    }
  }

  // Cuts with the cheap nodes and those of `costly` allowed to run again; returns the bytes kept.
  int64_t cut(const std::set<size_t>& costly) {
    MinCut problem(graph_.buffers.size());
    for (size_t b = 0; b < graph_.buffers.size(); ++b) {
      if (maker_[b] < 0) continue;
      problem.set_cost(b, weight_[b]);
      if (read_late_[b]) problem.add_sink(b);
      const auto n = static_cast<size_t>(maker_[b]);
      if (class_[n] != Recompute::cheap && !costly.contains(n)) {
        problem.add_source(b);
        continue;
      }
      for (const Value& v : graph_.nodes[n].inputs) {
        if (is_early(v.buffer)) problem.add_edge(static_cast<size_t>(v.buffer), b);
      }
    }
    side_ = problem.run();
    return problem.cost();
  }

  void choose() {
    const double budget = options_.activation_memory_budget;
    statistics_.kept_bytes = cut({});
    if (budget >= 1) return;
    if (backward_.runs_later) statistics_.kept_bytes = cut(costly_for(budget, statistics_.kept_bytes));
    else choose_by_peak(budget);
  }

  // Recomputing more keeps less, but what is recomputed lives as well: a long chain from its beginning takes as much as
  // keeping it. Where forward and backward run in one call, the budget from the given one up whose graph needs the
  // least memory is taken, so a smaller budget never needs more.
  void choose_by_peak(double budget) {
    constexpr int kLevels = 8;  // in multiples of 1 / kLevels, so that all calls compare the same ones
    const int64_t most = statistics_.kept_bytes;
    std::vector<Side> best = side_;
    int64_t least_peak = peak();
    for (auto level = static_cast<int>(budget * kLevels); level < kLevels; ++level) {
      const int64_t kept = cut(costly_for(static_cast<double>(level) / kLevels, most)), needed = peak();
      if (needed > least_peak || (needed == least_peak && kept >= statistics_.kept_bytes)) continue;
      least_peak = needed;
      best = side_;
      statistics_.kept_bytes = kept;
    }
    side_ = std::move(best);
  }

  // The memory that the graph needs with the current sides.
  int64_t peak() {
    Graph rewritten = graph_;
    rewrite(rewritten);
    std::fill(copy_.begin(), copy_.end(), -1);
    statistics_.recomputed = 0;
    return live_peak(rewritten);
  }

  // The costly nodes to recompute, so that no more is kept than the part `budget` of what lies between the least and
  // `most`.
  std::set<size_t> costly_for(double budget, int64_t most) {
    std::vector<std::pair<double, size_t>> candidates;  // work per byte freed, node
    for (size_t n = 0; n < class_.size(); ++n) {
      if (class_[n] != Recompute::costly) continue;
      candidates.push_back({work_of(graph_.nodes[n], graph_) /
                                static_cast<double>(std::max<int64_t>(bytes_of(graph_.nodes[n].outputs), 1)),
                            n});
    }
    std::sort(candidates.begin(), candidates.end());
    const auto first = [&](size_t count) {
      std::set<size_t> nodes;
      for (size_t i = 0; i < count; ++i) nodes.insert(candidates[i].second);
      return nodes;
    };
    const int64_t least = cut(first(candidates.size()));
    const int64_t target = least + static_cast<int64_t>(budget * static_cast<double>(most - least));
    // The fewest that are enough, then without those that the dearer ones made needless.
    size_t low = 0, high = candidates.size();
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (cut(first(middle)) <= target) high = middle;
      else low = middle + 1;
    }
    std::set<size_t> chosen = first(low);
    for (size_t i = low; i-- > 0;) {
      chosen.erase(candidates[i].second);
      if (cut(chosen) > target) chosen.insert(candidates[i].second);
    }
    return chosen;
  }

  void rewrite(Graph& graph) {
    std::vector<Node> nodes;
    nodes.reserve(graph.nodes.size());
    std::vector<Value> forward_end;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      Node node = graph.nodes[n];
      if (!late_[n]) {
        if (!node.outputs.empty()) forward_end = {node.outputs[0]};
        nodes.push_back(std::move(node));
        continue;
      }
      std::vector<Value> after;
      for (const Value& v : node.inputs) {
        if (made_late_.contains(v.buffer)) after.push_back(v);
      }
      if (after.empty() && !backward_.runs_later) after = forward_end;
      for (Value& v : node.inputs) v.buffer = again(graph, v.buffer, after, nodes);
      nodes.push_back(std::move(node));
    }
    graph.nodes = std::move(nodes);
  }

  // The buffer where the backward finds what `buffer` holds; appends what computes it again.
  int32_t again(Graph& graph, int32_t buffer, const std::vector<Value>& after, std::vector<Node>& nodes) {
    const auto b = static_cast<size_t>(buffer);
    if (!is_early(buffer) || side_[b] != Side::sink) return buffer;
    if (copy_[b] >= 0) return copy_[b];
    Node node = graph.nodes[static_cast<size_t>(maker_[b])];
    for (Value& v : node.inputs) v.buffer = again(graph, v.buffer, after, nodes);
    for (Value& v : node.outputs) {
      copy_[static_cast<size_t>(v.buffer)] = static_cast<int32_t>(graph.buffers.size());
      graph.buffers.push_back(graph.buffers[static_cast<size_t>(v.buffer)]);
      v.buffer = copy_[static_cast<size_t>(v.buffer)];
    }
    node.after = after;
    node.origin.phase = TracePhase::backward;
    nodes.push_back(std::move(node));
    ++statistics_.recomputed;
    return copy_[b];
  }

  Graph& graph_;
  const PartitionOptions& options_;
  const BackwardPart& backward_;
  std::vector<bool> late_;       // per node: of the backward
  std::vector<int32_t> maker_;   // per buffer: the node of the forward that makes it
  std::set<int32_t> made_late_;  // buffers
  std::vector<int64_t> weight_;  // per buffer: bytes that keeping it takes
  std::vector<bool> read_late_, must_keep_;
  std::vector<Recompute> class_;  // per node
  std::vector<Side> side_;        // per buffer
  std::vector<int32_t> copy_;     // per buffer: its copy in the backward
  PartitionStatistics statistics_;
};

}  // namespace

PartitionStatistics partition(Graph& graph, const PartitionOptions& options, const BackwardPart& backward) {
  return Partitioner(graph, options, backward).run();
}

void partition(PassState& state) { state.statistics.partition = partition(state.graph, state.options.partition, {}); }

}  // namespace tutti::graph
