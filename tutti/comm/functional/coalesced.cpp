#include "tutti/autograd/tape.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"
#include "tutti/ops/creation.h"

namespace tutti::comm::functional {
namespace {

// ---- the ops: any number of tensors in, one arena out
// ----------------------------------------------------------------

std::vector<OutputMeta> part_metas(const OpCall& call) {
  std::vector<OutputMeta> metas;
  for (size_t i = 0; i < call.inputs.size(); ++i) metas.push_back(row_result(call, i));
  return metas;
}

void infer(const OpCall& call, OutputMetas& out) { out.add(DType::u8, {Arena::of(part_metas(call)).bytes}); }

void run_coalesced(const OpCall& call, std::span<const Tensor> outputs) {
  const std::vector<OutputMeta> metas = part_metas(call);
  const Arena layout = Arena::of(metas);
  const Tensor target = target_of(outputs[0]);
  std::vector<Tensor> parts;
  for (size_t i = 0; i < metas.size(); ++i) parts.push_back(part_target(target, layout.offsets[i], metas[i]));
  run_row(call, parts, outputs[0]);
}

// ---- the gradient: one coalesced call for all cotangents
// -------------------------------------------------------------

struct CoalescedNode final : autograd::Node {
  CoalescedNode(const OpDef& op, const CallAttrs& attrs) : op(op), attrs(attrs) {}
  const char* name() const override { return op.name; }

  void run(std::span<const Tensor> grads, std::span<Tensor> input_grads, uint32_t) override {
    TUTTI_CHECK(!released,
                "backward of {}: the graph was used before and its saved tensors are gone; pass retain_graph = true to "
                "the first backward",
                op.name);
    std::vector<size_t> wanted;
    std::vector<Tensor> cotangents;
    for (size_t i = 0; i < edges.size(); ++i) {
      if (!edges[i].wanted()) continue;
      wanted.push_back(i);
      // All ranks send all of them, used or not.
      cotangents.push_back(grads[i].defined() ? widened(grads[i])
                                              : zeros(results[i].sizes, compute_dtype(results[i].dtype)));
    }
    const std::vector<Tensor> back = wait_tensors(backward(cotangents));
    for (size_t k = 0; k < wanted.size(); ++k) {
      const size_t i = wanted[k];
      if (is_extremum(attrs.reduce.kind())) input_grads[i] = masked_cotangent(back[k], unchanged(i), outputs[i]);
      else if (attrs.reduce.kind() == ReduceKind::avg && row_of(op).flow == Flow::keeps)
        input_grads[i] = back[k];  // reduced by avg
      else input_grads[i] = scaled_cotangent(back[k], attrs.reduce, attrs.group.ranks);
    }
  }

  std::vector<Tensor> backward(std::span<const Tensor> cotangents) const {
    const GroupArgument group = attrs.group.resolve(op.name);
    const Flow flow = row_of(op).flow;
    if (flow == Flow::gathers) return reduce_scatter_single_coalesced(cotangents, ReduceKind::sum, group);
    if (flow == Flow::scatters) return all_gather_single_coalesced(cotangents, group);
    return all_reduce_coalesced(cotangents, attrs.reduce.kind() == ReduceKind::avg ? ReduceKind::avg : ReduceKind::sum,
                                group);
  }

  const Tensor& unchanged(size_t i) const {
    TUTTI_CHECK(inputs[i].version() == versions[i],
                "backward of {}: its input {} ({}) was changed in place after the forward; write to a clone() instead",
                op.name, i, describe(inputs[i]));
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
  const Attrs packed = Attrs::of(attrs);
  const std::vector<OutputMeta> metas = part_metas({op, inputs, packed});
  const bool recorded = wants_gradient(inputs);
  const bool linear = is_linear(attrs.reduce.kind());
  if (recorded && !linear && !(is_extremum(attrs.reduce.kind()) && row_of(op).flow == Flow::keeps))
    throw_no_gradient(op.name, attrs.reduce);
  const auto node = recorded ? std::make_shared<CoalescedNode>(op, attrs) : nullptr;
  if (node) node->order = autograd::next_order();
  std::vector<Tensor> parts;
  {
    const NoGradScope no_grad;
    const Tensor arena = apply1(op, inputs, packed);
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
  TUTTI_CHECK(dims.empty() || dims.size() == tensors,
              "{}: {} dims for {} tensors; give one per tensor, or none for dim 0", op, dims.size(), tensors);
  return dims.empty() ? 0 : dims[i];
}

}  // namespace

std::vector<int64_t> part_offsets(const OpCall& call) { return Arena::of(part_metas(call)).offsets; }

namespace {

constexpr OpDef coalesced_op(const char* name) {
  return {.name = name,
          .num_inputs = -1,
          .infer = infer,
          .gradient = {.none = "its result is bytes; the functional collective records the gradient of their parts"},
          .ordered = true,
          .transfer = {.starts_early = true},
          .kernel = run_coalesced,
          .cost = wire_cost};
}

}  // namespace

const OpDef kAllReduceCoalesced = coalesced_op("all_reduce_coalesced");
const OpDef kAllGatherSingleCoalesced = coalesced_op("all_gather_single_coalesced");
const OpDef kReduceScatterSingleCoalesced = coalesced_op("reduce_scatter_single_coalesced");

std::vector<Tensor> all_reduce_coalesced(std::span<const Tensor> inputs, const ReduceArgument& op,
                                         const GroupArgument& group) {
  return group->checked(CollectiveKind::all_reduce_coalesced, [&]() -> std::vector<Tensor> {
    if (inputs.empty()) return {};
    return call_coalesced(kAllReduceCoalesced, inputs, {.group = GroupRef::of(group), .reduce = *op});
  });
}

std::vector<Tensor> all_gather_single_coalesced(std::span<const Tensor> inputs, const GroupArgument& group,
                                                std::span<const int64_t> gather_dims) {
  return group->checked(CollectiveKind::all_gather_single_coalesced, [&]() -> std::vector<Tensor> {
    constexpr const char* kName = "all_gather_single_coalesced";
    if (inputs.empty()) return {};
    std::vector<Tensor> ready;
    for (size_t i = 0; i < inputs.size(); ++i)
      ready.push_back(before_gather(kName, inputs[i], dim_of(kName, gather_dims, i, inputs.size())));
    std::vector<Tensor> results = call_coalesced(kAllGatherSingleCoalesced, ready, {.group = GroupRef::of(group)});
    for (size_t i = 0; i < inputs.size(); ++i) {
      results[i] =
          after_gather(kName, results[i], inputs[i], dim_of(kName, gather_dims, i, inputs.size()), group->size());
    }
    return results;
  });
}

std::vector<Tensor> reduce_scatter_single_coalesced(std::span<const Tensor> inputs, const ReduceArgument& op,
                                                    const GroupArgument& group, std::span<const int64_t> scatter_dims) {
  return group->checked(CollectiveKind::reduce_scatter_single_coalesced, [&]() -> std::vector<Tensor> {
    constexpr const char* kName = "reduce_scatter_single_coalesced";
    if (inputs.empty()) return {};
    std::vector<Tensor> ready;
    for (size_t i = 0; i < inputs.size(); ++i) {
      ready.push_back(before_scatter(kName, inputs[i], dim_of(kName, scatter_dims, i, inputs.size()), group->size()));
    }
    std::vector<Tensor> results =
        call_coalesced(kReduceScatterSingleCoalesced, ready, {.group = GroupRef::of(group), .reduce = *op});
    for (size_t i = 0; i < inputs.size(); ++i)
      results[i] = after_scatter(kName, results[i], inputs[i], dim_of(kName, scatter_dims, i, inputs.size()));
    return results;
  });
}

}  // namespace tutti::comm::functional
