#include "tutti/plan/passes/undefined.h"

#include <algorithm>

#include "tutti/plan/node_call.h"
#include "tutti/plan/recipe_facts.h"

namespace tutti::graph {
namespace {

// What a buffer holds: values of the forward, something computed from a cotangent that is there, or only from others.
enum class Holds : uint8_t { values, gradient, nothing };

bool is_dense(const Value& v, const Graph& graph) {
  return v.offset == 0 && v.strides == contiguous_strides(v.sizes) &&
         numel_of(v.sizes) * itemsize(v.dtype) == graph.buffers[static_cast<size_t>(v.buffer)].nbytes;
}

// A node has no way to take another dtype.
struct KeepsDtype {};

class Remover {
 public:
  // may_retype: a sum of cotangents of two dtypes may become one of its operands, and what reads it be of that dtype.
  Remover(Graph& graph, const std::vector<bool>& is_cotangent, const std::vector<bool>& undefined, bool may_retype)
      : graph_(graph),
        may_retype_(may_retype),
        holds_(graph.buffers.size(), Holds::values),
        needed_(graph.buffers.size(), false),
        infers_again_(graph.nodes.size(), false) {
    for (size_t b = 0; b < is_cotangent.size(); ++b) {
      if (is_cotangent[b]) holds_[b] = undefined[b] ? Holds::nothing : Holds::gradient;
    }
  }

  void run() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) place(n);
    for (Value& v : graph_.results) {
      if (v.buffer >= 0 && holds(v) == Holds::nothing) v = {};
    }
    drop();
  }

 private:
  Holds& holds(const Value& v) { return holds_[static_cast<size_t>(v.buffer)]; }

  void place(size_t n) {
    Node& node = graph_.nodes[n];
    if (infers_again_[n]) infer_again(n);
    const auto reads = [&](Holds kind) {
      return std::any_of(node.inputs.begin(), node.inputs.end(), [&](const Value& v) { return holds(v) == kind; });
    };
    const bool gradient = reads(Holds::gradient), nothing = reads(Holds::nothing);
    fate_.push_back(nothing && !gradient ? Fate::undefined : Fate::stays);
    if (gradient && nothing) {
      if (leaves_terms_out(n)) return;
      for (const Value& v : node.inputs) {
        if (holds(v) == Holds::nothing) needed_[static_cast<size_t>(v.buffer)] = true;
      }
    }
    for (const Value& v : node.outputs) {
      if (gradient) holds(v) = Holds::gradient;
      else if (nothing) holds(v) = Holds::nothing;
    }
  }

  bool is_sum(const Node& node) const {
    if (node.op->recipe.build == nullptr || node.op->recipe.pick != nullptr || node.outputs.size() != 1) return false;
    const DType dtype = node.outputs[0].dtype;
    return RecipeFacts(NodeCall(node, graph_).call, {&dtype, 1}).adds(node.inputs.size());
  }

  // A sum adds the terms that there are. With a zero in place of a missing one, -0 would become 0.
  bool leaves_terms_out(size_t n) {
    Node& node = graph_.nodes[n];
    if (!is_sum(node)) return false;
    const auto terms = std::count_if(node.inputs.begin(), node.inputs.end(),
                                     [&](const Value& v) { return holds(v) != Holds::nothing; });
    if (terms == 1 && becomes_its_operand(n)) return true;
    if (node.op->num_inputs >= 0) return false;
    std::erase_if(node.inputs, [&](const Value& v) { return holds(v) == Holds::nothing; });
    holds(node.outputs[0]) = Holds::gradient;
    return true;
  }

  // A sum of one: whoever reads it reads the operand.
  bool becomes_its_operand(size_t n) {
    const Node& node = graph_.nodes[n];
    const Value& sum = node.outputs[0];
    const Value operand = *std::find_if(node.inputs.begin(), node.inputs.end(),
                                        [&](const Value& v) { return holds(v) != Holds::nothing; });
    const Buffer &made = graph_.buffers[static_cast<size_t>(sum.buffer)],
                 &source = graph_.buffers[static_cast<size_t>(operand.buffer)];
    const bool stays = made.kind == Buffer::Kind::made && made.versions == 1 && source.versions == 1;
    if (!stays || (operand.dtype != sum.dtype && !may_retype_) || operand.sizes != sum.sizes) return false;
    const bool as_buffer = is_dense(operand, graph_);
    bool can_be_read = true;
    const Value whole = sum;
    for_each_reader(n, whole.buffer,
                    [&](const Value& v, size_t) { can_be_read = can_be_read && (as_buffer || v == whole); });
    if (!can_be_read) return false;
    for_each_reader(n, whole.buffer, [&](Value& v, size_t reader) {
      if (v == whole) v = operand;
      else v.buffer = operand.buffer, v.dtype = operand.dtype;
      if (operand.dtype != whole.dtype) take_dtype(reader);
    });
    fate_[n] = Fate::replaced;
    return true;
  }

  // Calls visit(value, node) for what reads a buffer behind node n; the graph's results count as a node behind the
  // last.
  template <class Visit>
  void for_each_reader(size_t n, int32_t buffer, Visit visit) {
    for (size_t m = n + 1; m < graph_.nodes.size(); ++m) {
      for (std::vector<Value>* list : {&graph_.nodes[m].inputs, &graph_.nodes[m].after}) {
        for (Value& v : *list) {
          if (v.buffer == buffer) visit(v, m);
        }
      }
    }
    for (Value& v : graph_.results) {
      if (v.buffer == buffer) visit(v, graph_.nodes.size());
    }
  }

  // An operand of node n has another dtype than in the trace: so may have what it gives.
  void infer_again(size_t n) {
    Node& node = graph_.nodes[n];
    if (node.control || has_effect(node)) throw KeepsDtype{};
    const NodeCall call(node, graph_);
    OutputMetas metas;
    try {
      node.op->infer(call.call, metas);
    } catch (const UsageError&) {  // another operand was made for the dtype of the trace
      throw KeepsDtype{};
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      Value& v = node.outputs[k];
      const DType before = v.dtype, now = metas.meta[k].dtype;
      if (before == now) continue;
      Buffer& buffer = graph_.buffers[static_cast<size_t>(v.buffer)];
      if (buffer.versions != 1) throw KeepsDtype{};
      v.dtype = now;
      buffer.nbytes = buffer.nbytes / itemsize(before) * itemsize(now);
      for_each_reader(n, v.buffer, [&](Value& read, size_t reader) {
        if (read.dtype != before) throw KeepsDtype{};
        read.dtype = now;
        take_dtype(reader);
      });
    }
  }

  // What node `reader` reads has another dtype. A gradient has that of its leaf.
  void take_dtype(size_t reader) {
    if (reader == infers_again_.size()) throw KeepsDtype{};
    infers_again_[reader] = true;
  }

  // Takes out what has no cotangent, but for what some op needs as zeros.
  void drop() {
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      if (fate_[n] != Fate::undefined) continue;
      const Node& node = graph_.nodes[n];
      if (std::none_of(node.outputs.begin(), node.outputs.end(),
                       [&](const Value& v) { return needed_[static_cast<size_t>(v.buffer)]; }))
        continue;
      fate_[n] = Fate::stays;
      for (const Value& v : node.inputs) needed_[static_cast<size_t>(v.buffer)] = true;
    }
    size_t n = 0;
    std::erase_if(graph_.nodes, [&](const Node&) { return fate_[n++] != Fate::stays; });
  }

  enum class Fate : uint8_t { stays, undefined, replaced };
  Graph& graph_;
  const bool may_retype_;
  std::vector<Holds> holds_;        // per buffer
  std::vector<bool> needed_;        // per buffer that holds nothing: some op reads it all the same
  std::vector<bool> infers_again_;  // per node: an operand of another dtype than in the trace
  std::vector<Fate> fate_;          // per node
};

}  // namespace

Graph without_undefined(const Graph& graph, const std::vector<bool>& is_cotangent, const std::vector<bool>& undefined) {
  Graph without = graph;
  try {
    Remover(without, is_cotangent, undefined, true).run();
  } catch (const KeepsDtype&) {
    without = graph;
    Remover(without, is_cotangent, undefined, false).run();
  }
  return without;
}

}  // namespace tutti::graph
