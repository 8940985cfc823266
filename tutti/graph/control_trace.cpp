#include "tutti/graph/control_trace.h"

#include <algorithm>

#include "tutti/graph/control_result.h"
#include "tutti/ops/creation.h"
#include "tutti/plan/passes/remove_unused.h"

namespace tutti::graph {
namespace {

// Leaves only the buffers that nodes and results touch. Gives, for each given one, the source it had.
std::vector<int32_t> compact(Graph& graph) {
  std::vector<int32_t> renamed(graph.buffers.size(), -1), sources;
  std::vector<Buffer> kept;
  const auto rename = [&](Value& v) {
    if (v.buffer < 0) return;
    int32_t& name = renamed[static_cast<size_t>(v.buffer)];
    if (name < 0) {
      name = static_cast<int32_t>(kept.size());
      kept.push_back(graph.buffers[static_cast<size_t>(v.buffer)]);
      if (kept.back().kind == Buffer::Kind::given) {
        sources.push_back(kept.back().source);
        kept.back().source = static_cast<int32_t>(sources.size()) - 1;
      }
    }
    v.buffer = name;
  };
  for (Node& node : graph.nodes) {
    for (Value& v : node.inputs) rename(v);
    for (Value& v : node.outputs) rename(v);
  }
  for (Value& v : graph.results) rename(v);
  graph.buffers = std::move(kept);
  return sources;
}

}  // namespace

int32_t NodeInputs::add_value(const Value& v) {
  const auto it = std::find(values.begin() + static_cast<std::ptrdiff_t>(first_shared_), values.end(), v);
  if (it != values.end()) return static_cast<int32_t>(it - values.begin());
  values.push_back(v);
  return static_cast<int32_t>(values.size()) - 1;
}

int32_t NodeInputs::add(const Tensor& t, bool alone) {
  if (!alone) return add_value(outer_.value_of(t));
  values.push_back(outer_.value_of(t));
  first_shared_ = values.size();
  return static_cast<int32_t>(values.size()) - 1;
}

ControlBody::Feed NodeInputs::add_storage(const Tensor& t) {
  const Value v = outer_.value_of(t);
  const int64_t nbytes = outer_.graph().buffers[static_cast<size_t>(v.buffer)].nbytes;
  const int32_t input =
      add_value({.buffer = v.buffer, .version = v.version, .dtype = DType::u8, .sizes = {nbytes}, .strides = {1}});
  return {input, (v.offset - t.offset()) * itemsize(t.dtype())};
}

PartTrace::PartTrace(Trace& outer, const std::string& name, std::vector<Tensor> operands, size_t num_dense, Fn fn)
    : name_(name), trace_(name, outer), later_(std::move(operands)) {
  for (size_t i = 0; i < later_.size(); ++i) {
    const Tensor& t = later_[i];
    stand_ins_.push_back(i < num_dense ? trace_.add_later(t.extents(), t.dtype(), t.device()) : trace_.add_later(t));
    if (is_grad_enabled() && requires_grad(t)) requires_grad_(stand_ins_.back());
    versions_.push_back({t.storage(), 0});
  }
  {
    Trace::Scope scope(trace_);
    std::vector<Tensor> results = fn(stand_ins_);
    for (Tensor& t : results) {
      TUTTI_CHECK(t.defined(), "'{}' gives an undefined tensor; every result must be one", trace_.name());
      result_values_.push_back(trace_.value_of(t));
      results_.push_back(as_result(std::move(t), false));
    }
  }
  refuse_gradients();
  forward_nodes_ = trace_.graph().nodes.size();
  for (const Captured& c : trace_.captured()) versions_.push_back({c.tensor.storage(), 0});
  for (auto& [storage, version] : versions_) version = storage->version();
}

void PartTrace::refuse_gradients() {
  bool set = std::any_of(stand_ins_.begin(), stand_ins_.end(), [](const Tensor& t) { return grad_of(t).defined(); });
  for (const Captured& c : trace_.captured()) {
    const Tensor now = grad_of(c.tensor);
    if (now.defined() == c.grad_before.defined() && (!now.defined() || now.is_same(c.grad_before))) continue;
    set_grad(c.tensor, c.grad_before);
    set = true;
  }
  if (set) {
    throw CaptureError(
        27,
        fmt::format(
            "'{}' calls backward(), which sets gradients of tensors outside of it; return the gradients (grad() gives "
            "them), or call backward() on the result outside",
            trace_.name()));
  }
}

bool PartTrace::inputs_changed() const {
  return std::any_of(versions_.begin(), versions_.end(), [](const auto& v) { return v.first->version() != v.second; });
}

ControlBody::Part PartTrace::extract(Graph graph, NodeInputs& inputs, FunctionRef<int32_t(int32_t)> input_of) {
  remove_unused(graph);
  ControlBody::Part part{.name = name_, .graph = {}, .feeds = {}};
  for (const int32_t s : compact(graph)) {
    const Trace::Source& source = trace_.sources()[static_cast<size_t>(s)];
    if (source.kind == Trace::Source::Kind::later) part.feeds.push_back({input_of(source.index), -source.lead});
    else part.feeds.push_back(inputs.add_storage(trace_.captured()[static_cast<size_t>(source.index)].tensor));
  }
  part.graph = std::move(graph);
  return part;
}

std::vector<autograd::Edge> PartTrace::captured() const {
  std::vector<autograd::Edge> edges;
  const auto add = [&](const Tensor& t) {
    if (autograd::Edge edge = autograd::edge_of(t); edge.wanted()) edges.push_back(std::move(edge));
  };
  for (size_t i = 0; i < stand_ins_.size(); ++i) add(later_[i]);
  for (const Captured& c : trace_.captured()) add(c.tensor);
  return edges;
}

ControlBody::Part PartTrace::forward(NodeInputs& inputs, FunctionRef<int32_t(int32_t)> input_of) {
  Graph graph = trace_.graph();
  graph.results = result_values_;
  return extract(std::move(graph), inputs, input_of);
}

std::vector<autograd::Outgoing> PartTrace::send_back(const autograd::Order& start, std::span<const Tensor> cotangents) {
  std::vector<Tensor> outputs, own;
  for (size_t k = 0; k < results_.size(); ++k) {
    if (!cotangents[k].defined() || !requires_grad(results_[k])) continue;
    outputs.push_back(results_[k]);
    own.push_back(trace_.add_later(cotangents[k]));
    later_.push_back(cotangents[k]);
  }
  if (outputs.empty()) return {};
  Trace::Scope scope(trace_);
  std::vector<autograd::Outgoing> sent;
  for (autograd::Outgoing& out : autograd::backward_since(start, outputs, own)) {
    if (out.to.leaf.defined() && trace_.is_traced(out.to.leaf)) {
      const auto it =
          std::find_if(stand_ins_.begin(), stand_ins_.end(), [&](const Tensor& t) { return t.is_same(out.to.leaf); });
      if (it == stand_ins_.end()) continue;  // a leaf of its own
      out.to = autograd::edge_of(later_[static_cast<size_t>(it - stand_ins_.begin())]);
    }
    sent.push_back(std::move(out));
  }
  return sent;
}

Tensor PartTrace::nothing(const Tensor& like) {
  Trace::Scope scope(trace_);
  return full(like.sizes(), -0.0, like.dtype());
}

ControlBody::Part PartTrace::backward(NodeInputs& inputs, std::span<const Tensor> grads) {
  Graph graph = trace_.graph();
  graph.results.clear();
  for (const Tensor& g : grads) graph.results.push_back(trace_.value_of(g));
  // What is computed again has passed its checks.
  std::vector<Node> nodes;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto& control = graph.nodes[n].control;
    if (n >= forward_nodes_ || !control || control->kind != ControlBody::Kind::check)
      nodes.push_back(std::move(graph.nodes[n]));
  }
  graph.nodes = std::move(nodes);
  return extract(std::move(graph), inputs, [&](int32_t i) { return inputs.add(later_[static_cast<size_t>(i)]); });
}

void check_agreement(const char* what, const Trace& outer, std::span<const std::unique_ptr<PartTrace>> parts) {
  const PartTrace& first = *parts[0];
  for (const auto& part : parts.subspan(1)) {
    if (part->results().size() != first.results().size()) {
      throw CaptureError(
          26, fmt::format("{} in '{}': the {} gives {} tensors, the {} {}; give the same number from both", what,
                          outer.name(), first.name(), first.results().size(), part->name(), part->results().size()));
    }
    for (size_t k = 0; k < part->results().size(); ++k) {
      const Tensor &a = first.results()[k], &b = part->results()[k];
      if (a.dtype() == b.dtype() && a.extents() == b.extents()) continue;
      throw CaptureError(
          26, fmt::format(
                  "{} in '{}': result {} of the {} is {}, of the {} {}; give the same shape and dtype from both (cast, "
                  "reshape, pad or broadcast one)",
                  what, outer.name(), k, first.name(), describe(a), part->name(), describe(b)));
    }
  }
}

bool any_ordered(std::span<const ControlBody::Part> parts) {
  return std::any_of(parts.begin(), parts.end(), [](const ControlBody::Part& part) {
    return std::any_of(part.graph.nodes.begin(), part.graph.nodes.end(),
                       [](const Node& node) { return is_ordered(node); });
  });
}

std::vector<OutputMeta> metas_of(std::span<const Tensor> results) {
  std::vector<OutputMeta> metas;
  for (const Tensor& t : results) metas.push_back({t.dtype(), t.sizes()});
  return metas;
}

}  // namespace tutti::graph
