#include "tutti/autograd/tape.h"
#include "tutti/comm/call_checks.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti::comm::functional {
namespace {

// ---- the ops: any number of tensors in, one arena out ----------------------------------------------------------------

enum class Resize : uint8_t { none, gather, scatter };

Resize resize_of(const OpDef& op) {
  if (&op == &kAllGatherSingleCoalesced) return Resize::gather;
  return &op == &kReduceScatterSingleCoalesced ? Resize::scatter : Resize::none;
}

std::vector<OutputMeta> part_metas(const OpDef& op, std::span<const Tensor> inputs, int ranks) {
  std::vector<OutputMeta> metas;
  for (const Tensor& x : inputs) {
    TUTTI_CHECK(x.defined(), "{}: a tensor is undefined", op.name);
    switch (resize_of(op)) {
      case Resize::none: metas.push_back({x.dtype(), x.sizes()}); break;
      case Resize::gather: metas.push_back({x.dtype(), gathered_sizes(op.name, x, ranks)}); break;
      case Resize::scatter: metas.push_back({x.dtype(), scattered_sizes(op.name, x, ranks)}); break;
    }
  }
  return metas;
}

void infer(const OpCall& call, OutputMetas& out) {
  const CallAttrs& a = attrs_of(call);
  if (&call.op != &kAllGatherSingleCoalesced) {
    for (const Tensor& x : call.inputs) checks::reducible(call.op.name, a.reduce, x.dtype());
  }
  out.add(DType::u8, {Arena::of(part_metas(call.op, call.inputs, a.group.ranks)).bytes});
}

std::vector<Tensor> part_targets(const OpCall& call, const Tensor& arena) {
  const std::vector<OutputMeta> metas = part_metas(call.op, call.inputs, attrs_of(call).group.ranks);
  const Arena layout = Arena::of(metas);
  const Tensor target = target_of(arena);
  std::vector<Tensor> parts;
  for (size_t i = 0; i < metas.size(); ++i) parts.push_back(part_target(target, layout.offsets[i], metas[i]));
  return parts;
}

void run_all_reduce(const OpCall& call, std::span<const Tensor> outputs) {
  const std::vector<Tensor> parts = part_targets(call, outputs[0]);
  for (size_t i = 0; i < parts.size(); ++i) facets::raw_copy(parts[i], call[i]);
  attach(outputs[0], group_of(call)->all_reduce_coalesced(parts, attrs_of(call).reduce, kStart));
}

void run_all_gather(const OpCall& call, std::span<const Tensor> outputs) {
  const std::vector<Tensor> parts = part_targets(call, outputs[0]);
  std::vector<Tensor> own;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Extents& sizes = call[i].extents();
    own.push_back(parts[i].view_as(sizes, contiguous_strides(sizes), parts[i].offset() + rank_of(call) * call[i].numel()));
    facets::raw_copy(own[i], call[i]);
  }
  attach(outputs[0], group_of(call)->all_gather_single_coalesced(parts, own, kStart));
}

void run_reduce_scatter(const OpCall& call, std::span<const Tensor> outputs) {
  const std::vector<Tensor> parts = part_targets(call, outputs[0]);
  std::vector<Tensor> inputs;
  for (const Tensor& x : call.inputs) inputs.push_back(snapshot(x));
  attach(outputs[0], group_of(call)->reduce_scatter_single_coalesced(parts, inputs, attrs_of(call).reduce, kStart));
}

double total_bytes(const OpCall& call) {
  double bytes = 0;
  for (const Tensor& x : call.inputs) bytes += static_cast<double>(x.nbytes());
  return bytes;
}
double total_elements(const OpCall& call) {
  double count = 0;
  for (const Tensor& x : call.inputs) count += static_cast<double>(x.numel());
  return count;
}
double share(const OpCall& call) { return (attrs_of(call).group.ranks - 1.0) / attrs_of(call).group.ranks; }

constexpr const char* kGradientOfParts = "its result is bytes; the functional collective records the gradient of their parts";

// ---- the gradient: one coalesced call for all cotangents -------------------------------------------------------------

struct CoalescedNode final : autograd::Node {
  CoalescedNode(const OpDef& op, const CallAttrs& attrs) : op(op), attrs(attrs) {}
  const char* name() const override { return op.name; }

  void run(std::span<const Tensor> grads, std::span<Tensor> input_grads, uint32_t) override {
    TUTTI_CHECK(!released, "backward of {}: the graph was used before and its saved tensors are gone; pass retain_graph = true to "
                "the first backward", op.name);
    std::vector<size_t> wanted;
    std::vector<Tensor> cotangents;
    for (size_t i = 0; i < edges.size(); ++i) {
      if (!edges[i].wanted()) continue;
      wanted.push_back(i);
      // All ranks send all of them, used or not.
      cotangents.push_back(grads[i].defined() ? widened(grads[i]) : zeros(results[i].sizes, compute_dtype(results[i].dtype)));
    }
    const std::vector<Tensor> back = wait_tensors(backward(cotangents));
    for (size_t k = 0; k < wanted.size(); ++k) {
      const size_t i = wanted[k];
      if (is_extremum(attrs.reduce.kind())) input_grads[i] = masked_cotangent(back[k], unchanged(i), outputs[i]);
      else if (attrs.reduce.kind() == ReduceKind::avg && resize_of(op) == Resize::none) input_grads[i] = back[k];  // reduced by avg
      else input_grads[i] = scaled_cotangent(back[k], attrs.reduce, attrs.group.ranks);
    }
  }

  std::vector<Tensor> backward(std::span<const Tensor> cotangents) const {
    const GroupArgument group = attrs.group.resolve(op.name);
    switch (resize_of(op)) {
      case Resize::gather: return reduce_scatter_single_coalesced(cotangents, ReduceKind::sum, group);
      case Resize::scatter: return all_gather_single_coalesced(cotangents, group);
      case Resize::none: break;
    }
    return all_reduce_coalesced(cotangents, attrs.reduce.kind() == ReduceKind::avg ? ReduceKind::avg : ReduceKind::sum, group);
  }

  const Tensor& unchanged(size_t i) const {
    TUTTI_CHECK(inputs[i].version() == versions[i],
                "backward of {}: its input {} ({}) was changed in place after the forward; write to a clone() instead", op.name, i,
                describe(inputs[i]));
    return inputs[i];
  }

  void release_saved() override {
    inputs.clear();
    outputs.clear();
    released = true;
  }

  const OpDef& op;
  const CallAttrs attrs;
  std::vector<OutputMeta> results;
  std::vector<Tensor> inputs, outputs;  // of min and max only
  std::vector<uint32_t> versions;
  bool released = false;
};

bool wants_gradient(std::span<const Tensor> inputs) {
  if (!is_grad_enabled()) return false;
  for (const Tensor& x : inputs) {
    if (requires_grad(x)) return true;
  }
  return false;
}

std::vector<Tensor> call_coalesced(const OpDef& op, std::span<const Tensor> inputs, const CallAttrs& attrs) {
  const std::vector<OutputMeta> metas = part_metas(op, inputs, attrs.group.ranks);
  const bool recorded = wants_gradient(inputs);
  const bool linear = is_linear(attrs.reduce.kind());
  if (recorded && !linear && !(is_extremum(attrs.reduce.kind()) && resize_of(op) == Resize::none)) throw_no_gradient(op.name, attrs.reduce);
  const auto node = recorded ? std::make_shared<CoalescedNode>(op, attrs) : nullptr;
  if (node) node->order = autograd::next_order();
  std::vector<Tensor> parts;
  {
    const NoGradScope no_grad;
    const Tensor arena = apply1(op, inputs, Attrs::of(attrs));
    const Arena layout = Arena::of(metas);
    for (size_t i = 0; i < metas.size(); ++i) parts.push_back(part_of(arena, layout.offsets[i], metas[i]));
  }
  if (!node) return parts;
  node->num_outputs = static_cast<int>(parts.size());
  node->results = metas;
  for (size_t i = 0; i < parts.size(); ++i) {
    node->edges.push_back(autograd::edge_of(inputs[i]));
    if (!linear) {
      node->inputs.push_back(inputs[i]);
      node->versions.push_back(inputs[i].version());
      node->outputs.push_back(autograd::detached(parts[i]));
    }
    if (is_floating(parts[i].dtype())) autograd::set_history(parts[i], node, static_cast<int>(i));
  }
  return parts;
}

int64_t dim_of(const char* op, std::span<const int64_t> dims, size_t i, size_t tensors) {
  TUTTI_CHECK(dims.empty() || dims.size() == tensors, "{}: {} dims for {} tensors; give one per tensor, or none for dim 0", op, dims.size(), tensors);
  return dims.empty() ? 0 : dims[i];
}

}  // namespace

std::vector<int64_t> part_offsets(const OpCall& call) { return Arena::of(part_metas(call.op, call.inputs, attrs_of(call).group.ranks)).offsets; }

const OpDef kAllReduceCoalesced{
    .name = "all_reduce_coalesced",
    .num_inputs = -1,
    .infer = infer,
    .gradient = {.none = kGradientOfParts},
    .ordered = true,
    .transfer = {.starts_early = true},
    .kernel = run_all_reduce,
    .cost = [](const OpCall& call) { return wire_cost(2 * share(call) * total_bytes(call), share(call) * total_elements(call)); },
};

const OpDef kAllGatherSingleCoalesced{
    .name = "all_gather_single_coalesced",
    .num_inputs = -1,
    .infer = infer,
    .gradient = {.none = kGradientOfParts},
    .ordered = true,
    .transfer = {.starts_early = true},
    .kernel = run_all_gather,
    .cost = [](const OpCall& call) { return wire_cost((attrs_of(call).group.ranks - 1) * total_bytes(call)); },
};

const OpDef kReduceScatterSingleCoalesced{
    .name = "reduce_scatter_single_coalesced",
    .num_inputs = -1,
    .infer = infer,
    .gradient = {.none = kGradientOfParts},
    .ordered = true,
    .transfer = {.starts_early = true},
    .kernel = run_reduce_scatter,
    .cost = [](const OpCall& call) { return wire_cost(share(call) * total_bytes(call), share(call) * total_elements(call)); },
};

std::vector<Tensor> all_reduce_coalesced(std::span<const Tensor> inputs, const ReduceArgument& op, const GroupArgument& group) {
  return group->checked(CollectiveKind::all_reduce_coalesced, [&]() -> std::vector<Tensor> {
    if (inputs.empty()) return {};
    return call_coalesced(kAllReduceCoalesced, inputs, {.group = GroupRef::of(group), .reduce = *op});
  });
}

std::vector<Tensor> all_gather_single_coalesced(std::span<const Tensor> inputs, const GroupArgument& group, std::span<const int64_t> gather_dims) {
  return group->checked(CollectiveKind::all_gather_single_coalesced, [&]() -> std::vector<Tensor> {
    constexpr const char* kName = "all_gather_single_coalesced";
    if (inputs.empty()) return {};
    std::vector<Tensor> ready;
    for (size_t i = 0; i < inputs.size(); ++i) ready.push_back(before_gather(kName, inputs[i], dim_of(kName, gather_dims, i, inputs.size())));
    std::vector<Tensor> results = call_coalesced(kAllGatherSingleCoalesced, ready, {.group = GroupRef::of(group)});
    for (size_t i = 0; i < inputs.size(); ++i) {
      results[i] = after_gather(kName, results[i], inputs[i], dim_of(kName, gather_dims, i, inputs.size()), group->size());
    }
    return results;
  });
}

std::vector<Tensor> reduce_scatter_single_coalesced(std::span<const Tensor> inputs, const ReduceArgument& op, const GroupArgument& group,
                                                    std::span<const int64_t> scatter_dims) {
  return group->checked(CollectiveKind::reduce_scatter_single_coalesced, [&]() -> std::vector<Tensor> {
    constexpr const char* kName = "reduce_scatter_single_coalesced";
    if (inputs.empty()) return {};
    std::vector<Tensor> ready;
    for (size_t i = 0; i < inputs.size(); ++i) {
      ready.push_back(before_scatter(kName, inputs[i], dim_of(kName, scatter_dims, i, inputs.size()), group->size()));
    }
    std::vector<Tensor> results = call_coalesced(kReduceScatterSingleCoalesced, ready, {.group = GroupRef::of(group), .reduce = *op});
    for (size_t i = 0; i < inputs.size(); ++i) results[i] = after_scatter(kName, results[i], inputs[i], dim_of(kName, scatter_dims, i, inputs.size()));
    return results;
  });
}

}  // namespace tutti::comm::functional
