#include "tutti/plan/passes/bucket_collectives.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "tutti/plan/dependencies.h"
#include "tutti/plan/node_call.h"
#include "tutti/plan/passes/pass_state.h"

namespace tutti::graph {
namespace {

class Bucketer {
 public:
  Bucketer(Graph& graph, int64_t limit)
      : graph_(graph),
        limit_(limit),
        before_(dependencies_of(graph)),
        is_result_(graph.buffers.size(), false),
        bucket_of_(graph.nodes.size(), -1) {
    for (const Value& v : graph.results) {
      if (v.buffer >= 0) is_result_[static_cast<size_t>(v.buffer)] = true;
    }
  }

  int64_t run() {
    find_buckets();
    std::erase_if(buckets_, [](const std::vector<int32_t>& b) { return b.size() < 2; });
    if (buckets_.empty()) return 0;
    int64_t joined = 0;
    for (size_t b = 0; b < buckets_.size(); ++b) {
      joined += static_cast<int64_t>(buckets_[b].size()) - 1;
      for (const int32_t n : buckets_[b]) bucket_of_[static_cast<size_t>(n)] = static_cast<int32_t>(b);
    }
    reorder();
    rename();
    return joined;
  }

 private:
  const Node& node(int32_t n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  static int64_t bytes_of(const Node& node) {
    return numel_of(node.outputs[0].sizes) * itemsize(node.outputs[0].dtype);
  }

  bool may_share(const Node& node) const {
    if (node.op->transfer.coalesced == nullptr || node.outputs.size() != 1 || bytes_of(node) == 0) return false;
    const auto b = static_cast<size_t>(node.outputs[0].buffer);
    return graph_.buffers[b].versions == 1 && !is_result_[b];
  }

  bool is_alike(const Node& a, const Node& b) const {
    return a.op == b.op && a.attrs == b.attrs && a.outputs[0].dtype == b.outputs[0].dtype &&
           a.origin.region == b.origin.region &&
           graph_.buffers[static_cast<size_t>(a.outputs[0].buffer)].device ==
               graph_.buffers[static_cast<size_t>(b.outputs[0].buffer)].device;
  }

  void find_buckets() {
    std::vector<size_t> waits_for(graph_.nodes.size(),
                                  0);  // number of the newest bucket that the node needs something of
    int64_t bytes = 0;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& current = graph_.nodes[n];
      const size_t newest = buckets_.size();
      bool needs_newest = false;
      for (const int32_t p : before_[n]) {
        const bool member =
            newest > 0 && std::find(buckets_.back().begin(), buckets_.back().end(), p) != buckets_.back().end();
        const bool reads = std::any_of(current.inputs.begin(), current.inputs.end(), [&](const Value& v) {
          return std::any_of(node(p).outputs.begin(), node(p).outputs.end(),
                             [&](const Value& o) { return o.buffer == v.buffer; });
        });
        needs_newest =
            needs_newest ||
            (newest > 0 && (member ? reads || !is_ordered(current) : waits_for[static_cast<size_t>(p)] == newest));
      }
      if (is_ordered(current)) {
        const bool joins = open_ && !needs_newest && may_share(current) &&
                           is_alike(node(buckets_.back()[0]), current) && bytes + bytes_of(current) <= limit_;
        open_ = joins || (may_share(current) && bytes_of(current) <= limit_);
        if (joins) {
          buckets_.back().push_back(static_cast<int32_t>(n));
          bytes += bytes_of(current);
        } else if (open_) {
          buckets_.push_back({static_cast<int32_t>(n)});
          bytes = bytes_of(current);
        }
        continue;
      }
      if (needs_newest) waits_for[n] = newest;
    }
  }

  // A bucket stands where its last call stood; what reads the others' results comes behind it.
  void reorder() {
    const size_t count = graph_.nodes.size();
    const auto unit_of = [&](int32_t n) {
      const int32_t b = bucket_of_[static_cast<size_t>(n)];
      return b < 0 ? n : buckets_[static_cast<size_t>(b)].back();
    };
    std::vector<std::vector<int32_t>> after(count);
    std::vector<int32_t> missing(count, 0);
    for (size_t n = 0; n < count; ++n) {
      for (const int32_t p : before_[n]) {
        const int32_t from = unit_of(p), to = unit_of(static_cast<int32_t>(n));
        if (from == to) continue;
        after[static_cast<size_t>(from)].push_back(to);
        ++missing[static_cast<size_t>(to)];
      }
    }
    std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> ready;
    for (size_t n = 0; n < count; ++n) {
      if (unit_of(static_cast<int32_t>(n)) == static_cast<int32_t>(n) && missing[n] == 0)
        ready.push(static_cast<int32_t>(n));
    }
    std::vector<Node> nodes;
    while (!ready.empty()) {
      const int32_t n = ready.top();
      ready.pop();
      const int32_t b = bucket_of_[static_cast<size_t>(n)];
      nodes.push_back(b < 0 ? graph_.nodes[static_cast<size_t>(n)] : one_call(buckets_[static_cast<size_t>(b)]));
      for (const int32_t next : after[static_cast<size_t>(n)]) {
        if (--missing[static_cast<size_t>(next)] == 0) ready.push(next);
      }
    }
    TUTTI_ASSERT(nodes.size() + joined_ == count, "{} of {} nodes wait for each other", count - joined_ - nodes.size(),
                 count);
    graph_.nodes = std::move(nodes);
  }

  Node one_call(const std::vector<int32_t>& members) {
    Node call = node(members[0]);
    const Transfer& transfer = call.op->transfer;
    call.op = transfer.coalesced;
    call.inputs.clear(), call.outputs.clear(), call.after.clear();
    for (const int32_t n : members) {
      call.inputs.insert(call.inputs.end(), node(n).inputs.begin(), node(n).inputs.end());
      call.after.insert(call.after.end(), node(n).after.begin(), node(n).after.end());
    }
    const NodeCall facts(call, graph_);
    OutputMetas metas;
    call.op->infer(facts.call, metas);
    const Extents sizes = concrete(metas.meta[0].sizes);
    const auto block = static_cast<int32_t>(graph_.buffers.size());
    call.outputs.push_back(
        {.buffer = block, .dtype = metas.meta[0].dtype, .sizes = sizes, .strides = contiguous_strides(sizes)});
    const std::vector<int64_t> offsets = transfer.offsets(facts.call);
    for (size_t i = 0; i < members.size(); ++i)
      places_.push_back({node(members[i]).outputs[0].buffer, block, offsets[i]});
    const Device device = graph_.buffers[static_cast<size_t>(node(members[0]).outputs[0].buffer)].device;
    graph_.buffers.push_back({.nbytes = numel_of(sizes) * itemsize(metas.meta[0].dtype), .device = device});
    joined_ += members.size() - 1;
    return call;
  }

  // Who read a result of its own reads its part of the block.
  void rename() {
    std::vector<const Place*> place_of(graph_.buffers.size(), nullptr);
    for (const Place& p : places_) place_of[static_cast<size_t>(p.buffer)] = &p;
    for (Node& n : graph_.nodes) {
      for (std::vector<Value>* list : {&n.inputs, &n.after}) {
        for (Value& v : *list) {
          const Place* place = place_of[static_cast<size_t>(v.buffer)];
          if (place == nullptr) continue;
          v.buffer = place->block;
          v.offset += place->first_byte / itemsize(v.dtype);
        }
      }
    }
  }

  struct Place {
    int32_t buffer, block;
    int64_t first_byte;
  };
  Graph& graph_;
  const int64_t limit_;
  const std::vector<std::vector<int32_t>> before_;
  std::vector<bool> is_result_;
  std::vector<int32_t> bucket_of_;             // per node; -1: none
  std::vector<std::vector<int32_t>> buckets_;  // nodes
  bool open_ = false;                          // the last bucket may take more
  std::vector<Place> places_;
  size_t joined_ = 0;
};

}  // namespace

void bucket_collectives(PassState& state) {
  state.statistics.bucketed = Bucketer(state.graph, state.options.collectives.bucket_bytes).run();
}

}  // namespace tutti::graph
