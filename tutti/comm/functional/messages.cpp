#include "tutti/comm/call_checks.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/functional/op_words.h"

namespace tutti::comm::functional {
namespace {

void check_peer(const OpCall& call) {
  const CallAttrs& a = attrs_of(call);
  checks::peer(call.op.name, a.peer, rank_of(call), a.group.ranks, false);
}

Attrs message_attrs(const GroupArgument& group, int peer, uint32_t tag) {
  return Attrs::of(CallAttrs{.group = GroupRef::of(group), .peer = peer, .tag = tag});
}

Cost cost(const OpCall& call) { return Cost{.bytes = static_cast<double>(call[0].nbytes())}; }

}  // namespace

const OpDef kIsend{
    .name = "isend",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          check_peer(call);
          out.add(call[0].dtype(), {0});
        },
    // The cotangent of what was sent comes back from where it went.
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const OutputMeta& x = c.input_metas[0];
                       const Tensor like = placeholder(x.sizes, compute_dtype(x.dtype));
                       grads[0] = wait_tensor(irecv(like, attrs_of(c).peer, group_of(c), attrs_of(c).tag));
                     }},
    .ordered = true,
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          attach_token(outputs[0], group_of(call)->isend(snapshot(call[0]), attrs_of(call).peer, attrs_of(call).tag));
        },
    .cost = cost,
};

const OpDef kIrecv{
    .name = "irecv",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          check_peer(call);
          out.add(call[0].dtype(), call[0].sizes());
        },
    // The cotangent goes to the rank that sent the value. It is not waited for here: two ranks that send to each other
    // would both wait for the other to receive.
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const Tensor token = isend(widened(c.grads[0]), attrs_of(c).peer, group_of(c), attrs_of(c).tag);
                       grads[0] = no_cotangent(c.input_metas[0]);
                       attach_to(grads[0], token);
                     }},
    .ordered = true,
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          attach(outputs[0], group_of(call)->irecv(target_of(outputs[0]), attrs_of(call).peer, attrs_of(call).tag));
        },
    .cost = cost,
};

Tensor isend(const Tensor& x, int dst, const GroupArgument& group, uint32_t tag) {
  return call_op(kIsend, message_attrs(group, dst, tag), x);
}
Tensor irecv(const Tensor& like, int src, const GroupArgument& group, uint32_t tag) {
  return call_op(kIrecv, message_attrs(group, src, tag), like);
}

}  // namespace tutti::comm::functional
