#include "tutti/graph/joint.h"

#include <algorithm>
#include <iterator>

#include "tutti/autograd/split_grad.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::graph {

JointSplit JointSplit::at_end_of(Trace& trace) {
  const Graph& graph = trace.graph();
  JointSplit split{graph.nodes.size(), graph.buffers.size(), static_cast<std::ptrdiff_t>(trace.sources().size()), {}};
  for (const Buffer& b : graph.buffers) split.versions.push_back(b.versions - 1);
  return split;
}

Graph JointSplit::forward(const Graph& whole) const {
  Graph graph;
  graph.buffers.assign(whole.buffers.begin(), whole.buffers.begin() + static_cast<std::ptrdiff_t>(buffers));
  for (size_t b = 0; b < buffers; ++b) graph.buffers[b].versions = versions[b] + 1;
  graph.nodes.assign(whole.nodes.begin(), whole.nodes.begin() + static_cast<std::ptrdiff_t>(nodes));
  graph.results = whole.results;
  return graph;
}

JointTrace JointTrace::of(Trace& trace, const std::string& name, std::span<const Tensor> stand_ins,
                          std::span<const Tensor> actual, std::span<const Tensor> wanted,
                          const autograd::Order& start) {
  JointTrace made;
  std::vector<Tensor> arguments, captured_leaves;
  std::vector<int32_t> argument_of;
  for (size_t i = 0; i < stand_ins.size(); ++i) {
    const auto is_it = [&](const Tensor& t) { return t.is_same(stand_ins[i]); };
    if (!requires_grad(stand_ins[i]) || std::any_of(arguments.begin(), arguments.end(), is_it)) continue;
    argument_of.push_back(static_cast<int32_t>(i));
    arguments.push_back(stand_ins[i]);
  }
  for (const Captured& captured : trace.captured()) {
    const Tensor& t = captured.tensor;
    const autograd::Meta* meta = autograd::meta_of(t);
    if (meta == nullptr || !requires_grad(t)) continue;
    if (meta->node) {
      if (meta->node->order < start) {
        throw CaptureError(
            23, fmt::format(
                    "'{}' uses a tensor {} that was computed outside of it and requires grad; pass it as an argument, "
                    "or detach() it",
                    name, describe(t)));
      }
      continue;
    }
    captured_leaves.push_back(t);
  }
  std::vector<Tensor> cotangents;
  for (const Tensor& t : wanted) {
    cotangents.push_back(trace.add_cotangent(t));
    made.cotangent_forms.push_back(form_of(cotangents.back()));
    made.cotangent_dtypes.push_back(t.dtype());
  }
  Trace::Scope scope(trace);
  std::vector<Tensor> whole, by_use;
  for (const Tensor& t : arguments) (autograd::meta_of(t)->hooks.empty() ? by_use : whole).push_back(t);
  by_use.insert(by_use.end(), captured_leaves.begin(), captured_leaves.end());
  autograd::SplitGradients split = autograd::split_grad(wanted, cotangents, whole, by_use);
  made.consumers = std::move(split.consumers);
  struct Use {
    Leaf leaf;
    autograd::LeafUse use;
  };
  std::vector<std::vector<Use>> of_leaves;
  size_t next_whole = 0, next_by_use = 0;
  const auto add_next = [&](const Leaf& leaf, std::vector<Use>& list) {
    for (autograd::LeafUse& use : split.leaves[next_by_use++]) list.push_back({leaf, std::move(use)});
    if (list.empty()) list.push_back({leaf, {}});  // not used, and yet an input
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Leaf leaf{argument_of[i]};
    of_leaves.emplace_back();
    if (autograd::meta_of(arguments[i])->hooks.empty()) add_next(leaf, of_leaves.back());
    else of_leaves.back().push_back({leaf, {split.inputs[next_whole++], {}}});
  }
  for (const Tensor& t : captured_leaves) {
    const auto is_it = [&](int32_t i) { return actual[static_cast<size_t>(i)].is_same(t); };
    const auto argument = std::find_if(argument_of.begin(), argument_of.end(), is_it);
    std::vector<Use> uses;
    add_next({-1, t}, uses);
    if (argument == argument_of.end()) {
      of_leaves.push_back(std::move(uses));
      continue;
    }
    std::vector<Use>& list = of_leaves[static_cast<size_t>(argument - argument_of.begin())];
    list.insert(list.end(), std::make_move_iterator(uses.begin()), std::make_move_iterator(uses.end()));
    std::stable_sort(list.begin(), list.end(), [](const Use& a, const Use& b) { return a.use.place < b.use.place; });
  }
  for (std::vector<Use>& list : of_leaves) {
    for (Use& u : list) {
      made.leaves.push_back(std::move(u.leaf));
      made.grad_forms.push_back(form_of(u.use.grad));
      made.grads.push_back(inside_of(u.use.grad));
    }
  }
  return made;
}

std::vector<Value> JointTrace::grad_values(Trace& trace) const {
  std::vector<Value> values;
  for (const Tensor& g : grads) values.push_back(g.defined() ? trace.value_of(g) : Value{});
  return values;
}

PartitionStatistics JointTrace::partition(const JointSplit& split, Trace& trace,
                                          const PartitionOptions& options) const {
  return graph::partition(trace.graph(), options,
                          {.first_node = split.nodes, .results = grad_values(trace), .runs_later = true});
}

std::vector<int32_t> JointBackward::cotangent_buffers(const Graph& graph) const {
  std::vector<int32_t> buffers(cotangent_dtypes.size(), -1);
  for (size_t b = 0; b < graph.buffers.size(); ++b) {
    if (graph.buffers[b].kind != Buffer::Kind::given) continue;
    const Trace::Source& source = sources[static_cast<size_t>(graph.buffers[b].source)];
    const bool is_cotangent =
        source.kind == Trace::Source::Kind::later && static_cast<size_t>(source.index) < buffers.size();
    if (is_cotangent) buffers[static_cast<size_t>(source.index)] = static_cast<int32_t>(b);
  }
  return buffers;
}

std::unique_ptr<JointBackward> JointTrace::cut(const JointSplit& split, Trace& trace, Graph& forward,
                                               const BuildOptions& options) const {
  auto made = std::make_unique<JointBackward>();
  for (const Leaf& leaf : leaves)
    made->leaves.push_back({leaf.argument, leaf.held.defined() ? trace.index_of_captured(leaf.held) : -1});
  made->cotangent_dtypes = cotangent_dtypes;
  made->cotangent_forms = cotangent_forms;
  made->grad_forms = grad_forms;
  const std::vector<Value> results = grad_values(trace);
  const Graph& whole = trace.graph();
  Graph graph;
  std::vector<int32_t> renamed(whole.buffers.size(), -1);
  auto later = static_cast<int32_t>(cotangent_dtypes.size());
  made->first_saved = static_cast<int32_t>(forward.results.size());
  const auto base = [&](size_t b) { return b < split.buffers ? split.versions[b] : 0; };
  const auto rename = [&](Value v) {
    if (v.buffer < 0) return v;
    const auto b = static_cast<size_t>(v.buffer);
    if (renamed[b] < 0) {
      renamed[b] = static_cast<int32_t>(graph.buffers.size());
      Buffer buffer = whole.buffers[b];
      buffer.versions -= base(b);
      if (buffer.kind == Buffer::Kind::given) {
        made->sources.push_back(trace.sources()[static_cast<size_t>(buffer.source)]);
      } else if (b < split.buffers) {
        // Made by the forward: kept as bytes.
        buffer.kind = Buffer::Kind::given;
        made->sources.push_back({Trace::Source::Kind::later, later++, 0, 0});
        forward.results.push_back(
            {.buffer = v.buffer, .version = base(b), .dtype = DType::u8, .sizes = {buffer.nbytes}, .strides = {1}});
      }
      if (buffer.kind == Buffer::Kind::given) buffer.source = static_cast<int32_t>(made->sources.size()) - 1;
      graph.buffers.push_back(buffer);
    }
    v.buffer = renamed[b];
    v.version -= base(b);
    return v;
  };
  for (size_t n = split.nodes; n < whole.nodes.size(); ++n) {
    Node node = whole.nodes[n];
    for (Value& v : node.inputs) v = rename(v);
    for (Value& v : node.after) v = rename(v);
    for (Value& v : node.outputs) v = rename(v);
    graph.nodes.push_back(std::move(node));
  }
  for (const Value& v : results) graph.results.push_back(rename(v));
  if (cotangent_dtypes.size() > 1) {
    const std::vector<int32_t> buffers = made->cotangent_buffers(graph);
    std::vector<AddedCotangent> added;
    for (size_t k = 0; k < buffers.size(); ++k) {
      added.push_back({buffers[k], consumers[k]});
      made->consumes.push_back(consumers[k] > 0);
      made->adds_further.push_back(consumers[k] > 0 && is_added_last(graph, added.back()));
    }
    made->partial = std::make_unique<const PartialBackwards>(graph, std::move(added),
                                                             static_cast<int32_t>(made->sources.size()), options);
  }
  made->executable = std::make_unique<Executable>(std::move(graph), options);
  return made;
}

}  // namespace tutti::graph
