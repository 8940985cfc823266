#include "tutti/plan/passes/join_products.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "tutti/plan/node_call.h"
#include "tutti/plan/passes/pass_state.h"

namespace tutti::graph {
namespace {

class Joiner {
 public:
  explicit Joiner(Graph& graph)
      : graph_(graph),
        is_gone_(graph.nodes.size(), false),
        readers_(graph.buffers.size()),
        is_result_(graph.buffers.size(), false) {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const Value& v : graph.nodes[n].outputs) writer_[{v.buffer, v.version}] = n;
      for (const std::vector<Value>* list : {&graph.nodes[n].inputs, &graph.nodes[n].after}) {
        for (const Value& v : *list) readers_[static_cast<size_t>(v.buffer)].push_back(n);
      }
    }
    for (const Value& v : graph.results) {
      if (v.buffer >= 0) is_result_[static_cast<size_t>(v.buffer)] = true;
    }
  }

  int64_t run() {
    int64_t joined = 0;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (is_gone_[n]) continue;
      const Transfer& transfer = graph_.nodes[n].op->transfer;
      if (transfer.with_readers != nullptr) joined += join_readers(n, *transfer.with_readers);
      else if (transfer.with_producer != nullptr) joined += join_producer(n, *transfer.with_producer);
    }
    std::vector<Node> left;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!is_gone_[n]) left.push_back(std::move(graph_.nodes[n]));
    }
    graph_.nodes = std::move(left);
    return joined;
  }

 private:
  const Buffer& buffer_of(const Value& v) const { return graph_.buffers[static_cast<size_t>(v.buffer)]; }

  // Whether the node computes one new tensor of its inputs and does nothing else.
  bool is_plain(const Node& node) const {
    return node.outputs.size() == 1 && node.after.empty() && node.control == nullptr && node.keys.empty() &&
           node.fails == Fails::never && !is_ordered(node) && !has_effect(node) &&
           buffer_of(node.outputs[0]).versions == 1;
  }
  bool is_new(const Value& v) const {
    return v.version == 0 && buffer_of(v).kind == Buffer::Kind::made && buffer_of(v).versions == 1;
  }
  bool is_there(const Value& v, size_t before) const {
    const auto it = writer_.find({v.buffer, v.version});
    return it == writer_.end() || it->second < before;
  }

  std::optional<Attrs> attrs_with(const JoinedOp& joined, const Node& call, const Node& neighbour) const {
    if (!is_plain(neighbour) || neighbour.origin.region != call.origin.region) return std::nullopt;
    const NodeCall facts(neighbour, graph_), own(call, graph_);
    if (!joined.takes(own.call, facts.call)) return std::nullopt;
    return joined.attrs(own.call, facts.call);
  }

  int64_t join_readers(size_t n, const JoinedOp& joined) {
    Node& call = graph_.nodes[n];
    if (call.outputs.size() != 1 || !is_new(call.outputs[0])) return 0;
    Node made = call;
    std::optional<Attrs> attrs;
    size_t count = 0;
    for (const size_t r : readers_[static_cast<size_t>(call.outputs[0].buffer)]) {
      const Node& reader = graph_.nodes[r];
      if (is_gone_[r] || count == std::size(joined.ops) || joined.ops[count] == nullptr || reader.inputs.empty() ||
          reader.inputs[0] != call.outputs[0])
        continue;
      if (std::any_of(reader.inputs.begin() + 1, reader.inputs.end(),
                      [&](const Value& v) { return v.buffer == call.outputs[0].buffer || !is_there(v, n); }))
        continue;
      std::optional<Attrs> wanted = attrs_with(joined, call, reader);
      if (!wanted || (attrs && !(*attrs == *wanted))) continue;
      attrs = std::move(wanted);
      made.inputs.insert(made.inputs.end(), reader.inputs.begin() + 1, reader.inputs.end());
      made.outputs.push_back(reader.outputs[0]);
      is_gone_[r] = true;
      ++count;
    }
    if (count == 0) return 0;
    made.op = joined.ops[count - 1];
    made.attrs = *attrs;
    call = std::move(made);
    return static_cast<int64_t>(count);
  }

  int64_t join_producer(size_t n, const JoinedOp& joined) {
    Node& call = graph_.nodes[n];
    if (call.inputs.size() != 1 || call.outputs.size() != 1 || !is_new(call.inputs[0])) return 0;
    const auto at = static_cast<size_t>(call.inputs[0].buffer);
    const size_t p = writer_.at({call.inputs[0].buffer, 0});
    if (is_gone_[p] || is_result_[at] || readers_[at].size() != 1) return 0;
    const Node& producer = graph_.nodes[p];
    if (producer.outputs[0] != call.inputs[0]) return 0;
    const std::optional<Attrs> attrs = attrs_with(joined, call, producer);
    if (!attrs) return 0;
    // What it reads is still there where the collective stands.
    for (size_t m = p + 1; m < n; ++m) {
      for (const Value& written : graph_.nodes[m].outputs) {
        if (std::any_of(producer.inputs.begin(), producer.inputs.end(),
                        [&](const Value& v) { return v.buffer == written.buffer; }))
          return 0;
      }
    }
    call.op = joined.ops[0];
    call.attrs = *attrs;
    call.inputs = producer.inputs;
    is_gone_[p] = true;
    return 1;
  }

  Graph& graph_;
  std::vector<bool> is_gone_;
  std::map<std::pair<int32_t, int32_t>, size_t> writer_;  // by buffer and version
  std::vector<std::vector<size_t>> readers_;              // by buffer
  std::vector<bool> is_result_;
};

}  // namespace

void join_products(PassState& state) { state.statistics.joined = Joiner(state.graph).run(); }

}  // namespace tutti::graph
