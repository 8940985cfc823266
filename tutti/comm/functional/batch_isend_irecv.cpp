#include "tutti/autograd/tape.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti::comm::functional {
namespace {

using Kind = PointToPoint::Kind;

// Inputs of the op: the plan, i64 [n, 3] of kind, peer and tag, and one tensor per message. Each has its place in the
// arena, sent ones too: they are sent from there.
Tensor plan_of(std::span<const PointToPoint> operations) {
  std::vector<int64_t> plan;
  for (const PointToPoint& operation : operations) {
    plan.insert(plan.end(), {static_cast<int64_t>(operation.kind), int64_t{operation.peer}, int64_t{operation.tag}});
  }
  return Tensor::of(plan, {static_cast<int64_t>(operations.size()), 3});
}

std::vector<OutputMeta> metas_of(std::span<const Tensor> tensors) {
  std::vector<OutputMeta> metas;
  for (const Tensor& t : tensors) metas.push_back({t.dtype(), t.sizes()});
  return metas;
}

void run_messages(const OpCall& call, std::span<const Tensor> outputs) {
  const std::span<const Tensor> tensors = call.inputs.subspan(1);
  const std::vector<OutputMeta> metas = metas_of(tensors);
  const Arena layout = Arena::of(metas);
  const Tensor target = target_of(outputs[0]);
  const int64_t* plan = call[0].data<int64_t>();
  std::vector<PointToPoint> operations;
  for (size_t i = 0; i < tensors.size(); ++i, plan += 3) {
    const Tensor place = part_target(target, layout.offsets[i], metas[i]);
    if (static_cast<Kind>(plan[0]) == Kind::isend) facets::raw_copy(place, tensors[i]);
    operations.push_back(
        {static_cast<Kind>(plan[0]), place, static_cast<int>(plan[1]), static_cast<uint32_t>(plan[2])});
  }
  attach_token(outputs[0], group_of(call)->batch_isend_irecv(operations, kStart));
}

// The messages whose tensor wants its gradient, the other way round, all at once.
struct BatchNode final : autograd::Node {
  const char* name() const override { return kBatchIsendIrecv.name; }

  void run(std::span<const Tensor> grads, std::span<Tensor> input_grads, uint32_t) override {
    std::vector<size_t> wanted;
    std::vector<PointToPoint> back;
    for (size_t i = 0; i < edges.size(); ++i) {
      if (!edges[i].wanted()) continue;
      wanted.push_back(i);
      const DType dtype = compute_dtype(metas[i].dtype);
      const bool was_sent = kinds[i] == Kind::isend;
      Tensor tensor = was_sent             ? placeholder(metas[i].sizes, dtype)
                      : grads[i].defined() ? widened(grads[i])
                                           : zeros(metas[i].sizes, dtype);
      back.push_back({was_sent ? Kind::irecv : Kind::isend, std::move(tensor), peers[i], tags[i]});
    }
    const std::vector<Tensor> results = batch_isend_irecv(back, group.resolve(name()));
    for (size_t k = 0; k < wanted.size(); ++k) {
      const size_t i = wanted[k];
      if (kinds[i] == Kind::isend) {
        input_grads[i] = wait_tensor(results[k]);
      } else {
        input_grads[i] = no_cotangent(metas[i]);
        attach_to(input_grads[i], results[k]);
      }
    }
  }
  void release_saved() override {}

  GroupRef group;
  std::vector<Kind> kinds;
  std::vector<int> peers;
  std::vector<uint32_t> tags;
  std::vector<OutputMeta> metas;
};

std::shared_ptr<BatchNode> record(std::span<const PointToPoint> operations, const GroupRef& group) {
  bool wanted = false;
  for (const PointToPoint& operation : operations) wanted |= requires_grad(operation.tensor);
  if (!wanted || !is_grad_enabled()) return nullptr;
  auto node = std::make_shared<BatchNode>();
  node->order = autograd::next_order();
  node->group = group;
  node->num_outputs = static_cast<int>(operations.size());
  for (const PointToPoint& operation : operations) {
    node->edges.push_back(autograd::edge_of(operation.tensor));
    node->kinds.push_back(operation.kind);
    node->peers.push_back(operation.peer);
    node->tags.push_back(operation.tag);
    node->metas.push_back({operation.tensor.dtype(), operation.tensor.sizes()});
  }
  return node;
}

}  // namespace

const OpDef kBatchIsendIrecv{
    .name = "batch_isend_irecv",
    .num_inputs = -1,
    .infer = [](const OpCall& call,
                OutputMetas& out) { out.add(DType::u8, {Arena::of(metas_of(call.inputs.subspan(1))).bytes}); },
    .gradient = {.none = "its result is bytes; the functional collective records the gradient of their parts"},
    .ordered = true,
    .kernel = run_messages,
    .cost =
        [](const OpCall& call) {
          double bytes = 0;
          for (const Tensor& t : call.inputs.subspan(1)) bytes += static_cast<double>(t.nbytes());
          return Cost{.bytes = bytes};
        },
};

std::vector<Tensor> batch_isend_irecv(std::span<const PointToPoint> operations, const GroupArgument& group) {
  if (operations.empty()) return {};
  std::vector<Tensor> inputs{plan_of(operations)};
  for (size_t i = 0; i < operations.size(); ++i) {
    TUTTI_CHECK(operations[i].tensor.defined(), "batch_isend_irecv: the tensor of operation {} is undefined", i);
    inputs.push_back(operations[i].tensor);
  }
  const CallAttrs attrs{.group = GroupRef::of(group)};
  const std::shared_ptr<BatchNode> node = record(operations, attrs.group);
  const std::vector<OutputMeta> metas = metas_of(std::span<const Tensor>(inputs).subspan(1));
  const Arena layout = Arena::of(metas);
  std::vector<Tensor> results;
  const NoGradScope no_grad;
  const Tensor arena = apply1(kBatchIsendIrecv, inputs, Attrs::of(attrs));
  for (size_t i = 0; i < operations.size(); ++i) {
    OutputMeta meta = metas[i];
    if (operations[i].kind == Kind::isend) meta.sizes = {0};
    results.push_back(part_of(arena, layout.offsets[i], meta));
    if (node && is_floating(meta.dtype)) autograd::set_history(results[i], node, static_cast<int>(i));
  }
  return results;
}

}  // namespace tutti::comm::functional
