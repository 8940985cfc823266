#include "tutti/parallel/shared_dispatchers.h"

#include "tutti/autograd/function.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/grouped_mm.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"

namespace tutti::parallel {
namespace {

using Buffers = ExpertMemory::Buffers;
using Tensors = std::vector<Tensor>;

struct Begun {
  std::shared_ptr<const Buffers> buffers;
  nn::Dispatched dispatched;  // without rows
  int64_t slots;
};

// Everything about a dispatch but its rows.
Begun begin(ExpertMemory& memory, const TokenPlaces& places, int layer, const Tensor& x_TD, const nn::Routing& routing,
            const SymInt& most_tokens) {
  const int64_t slots_per_token = routing.expert_ids_TK.extents()[1],
                most_of_batch = places.most(x_TD.size(0), routing.expert_ids_TK.size(1), most_tokens).guard_int();
  const auto buffers = std::make_shared<const Buffers>(memory.buffers({.max_tokens = most_of_batch,
                                                                       .slots_per_token = slots_per_token,
                                                                       .dim = x_TD.extents()[1],
                                                                       .dtype = x_TD.dtype()},
                                                                      layer));
  const expert_rows::Lists& parts = buffers->lists;
  const Tensor& lists = buffers->forward.lists;
  Begun begun{.buffers = buffers,
              .dispatched = {.order = sort_slots(routing.expert_ids_TK)},
              .slots = x_TD.extents()[0] * slots_per_token};
  begun.dispatched.experts.offsets_E = narrow(lists, 0, 0, parts.counts_at());
  begun.dispatched.experts.positions_N = narrow(lists, 0, parts.positions_at(), parts.capacity);
  begun.dispatched.experts.position_count = parts.ranks * buffers->exchange.stride;  // places are numbered by the room
  begun.dispatched.arrived =
      reshape(narrow(lists, 0, parts.counts_at(), parts.ranks * parts.experts), {parts.ranks, parts.experts});
  begun.dispatched.kept = buffers;
  return begun;
}

// The gradient of the tokens from that of the rows that experts took: rows go back, and those of a token are added. The
// other way round it is the dispatch.
Tensor tokens_gradient(const Buffers& b, const Tensor& g_RD, const SlotOrder& order, const Tensor& counts_WE,
                       int64_t slots) {
  expert_rows::store_at_tokens(b.exchange, b.backward.at_tokens, b.backward.at_experts,
                               cast(g_RD, b.backward.at_tokens.dtype()), counts_WE);
  return combine_rows(narrow(b.backward.at_tokens, 0, 0, slots), order);
}

}  // namespace

SharedDispatcher::SharedDispatcher(const char* name, std::shared_ptr<ExpertMemory> memory, int64_t max_tokens)
    : memory_(std::move(memory)),
      places_(name, memory_->group(), memory_->experts(), max_tokens),
      layer_(memory_->add_layer()) {}

Tensor SharedDispatcher::combine(const Tensor& outputs_RD, const nn::Dispatched& dispatched,
                                 const nn::Routing& routing) const {
  const auto b = std::static_pointer_cast<const Buffers>(dispatched.kept);
  const int64_t slots = routing.expert_ids_TK.numel();
  const Tensor counts_WE = dispatched.arrived;
  const autograd::Function store(
      "store_outputs",
      [&](autograd::FunctionContext& context, std::span<const Tensor> in) -> Tensors {
        context.save({counts_WE});
        expert_rows::store_at_tokens(b->exchange, b->forward.outputs, b->backward.at_experts, in[0], counts_WE);
        return {detach(narrow(b->forward.outputs, 0, 0, slots))};
      },
      [b](const autograd::FunctionContext& context, std::span<const Tensor> grads) -> Tensors {
        expert_rows::store_at_experts(b->exchange, b->backward.at_experts, b->backward.at_tokens,
                                      cast(grads[0], b->backward.at_experts.dtype()), context.saved()[0]);
        return {detach(narrow(b->backward.at_experts, 0, 0, b->lists.capacity))};
      });
  return combine_rows(store(outputs_RD), dispatched.order, routing.weights_TK);
}

nn::Dispatched DirectStoreDispatcher::dispatch(const Tensor& x_TD, const nn::Routing& routing,
                                               SymInt most_tokens) const {
  Begun begun = begin(*memory_, places_, layer_, x_TD, routing, most_tokens);
  const auto b = begun.buffers;
  const nn::Dispatched& d = begun.dispatched;
  const int64_t slots_per_token = d.order.slots_per_token;
  const autograd::Function store(
      "store_tokens",
      [&](autograd::FunctionContext& context, std::span<const Tensor> in) -> Tensors {
        expert_rows::store_tokens(b->exchange, b->forward.rows, b->forward.lists, b->forward.outputs, b->mailbox, in[0],
                                  d.order.slot_of_row, routing.tokens_per_expert_E);
        context.save({d.order.slot_of_row, d.order.row_of_slot, d.arrived});
        return {detach(b->forward.rows)};
      },
      [b, slots_per_token, slots = begun.slots](const autograd::FunctionContext& context,
                                                std::span<const Tensor> grads) -> Tensors {
        const Tensors& saved = context.saved();
        return {tokens_gradient(*b, grads[0], {saved[0], saved[1], slots_per_token}, saved[2], slots)};
      });
  begun.dispatched.experts.rows_ND = store(x_TD);
  return begun.dispatched;
}

nn::Dispatched GatherOnReadDispatcher::dispatch(const Tensor& x_TD, const nn::Routing& routing,
                                                SymInt most_tokens) const {
  Begun begun = begin(*memory_, places_, layer_, x_TD, routing, most_tokens);
  const auto b = begun.buffers;
  const nn::Dispatched& d = begun.dispatched;
  const int64_t rows = b->lists.capacity, slots_per_token = d.order.slots_per_token;
  const autograd::Function publish(
      "publish_tokens",
      [&](autograd::FunctionContext& context, std::span<const Tensor> in) -> Tensors {
        expert_rows::publish_tokens(b->exchange, b->forward.rows, b->forward.lists, b->forward.outputs, b->mailbox,
                                    in[0], d.order.slot_of_row, routing.tokens_per_expert_E);
        context.save({d.order.slot_of_row, d.order.row_of_slot, d.arrived});
        return {b->forward.rows.view_as({rows, in[0].extents()[1]}, {0, 0},
                                        0)};  // stands for the rows, whose cotangent it gets
      },
      [b, slots_per_token, slots = begun.slots](const autograd::FunctionContext& context,
                                                std::span<const Tensor> grads) -> Tensors {
        const Tensors& saved = context.saved();
        return {tokens_gradient(*b, grads[0], {saved[0], saved[1], slots_per_token}, saved[2], slots)};
      });
  begun.dispatched.experts.rows_ND = publish(x_TD);
  const nn::ExpertRows& taken = begun.dispatched.experts;
  begun.dispatched.experts.multiply = [b, rows, positions = taken.positions_N, ends = taken.offsets_E,
                                       counts = d.arrived, position_count = taken.position_count](const Tensor& rows_RD,
                                                                                                  const Tensor& w_EDF) {
    const autograd::Function product(
        "multiply_published",
        [&](autograd::FunctionContext& context, std::span<const Tensor> in) -> Tensors {
          context.save({in[1], b->forward.rows, positions, ends, counts});
          return {expert_rows::multiply_published(b->exchange, b->forward.rows, positions, ends, in[1], counts, rows)};
        },
        [b, position_count](const autograd::FunctionContext& context, std::span<const Tensor> grads) -> Tensors {
          const Tensor &w = context.saved()[0], &tokens = context.saved()[1], &positions = context.saved()[2],
                       &ends = context.saved()[3], &counts = context.saved()[4], &g_RF = grads[0];
          const GroupedMmOptions options{
              .positions = positions, .position_count = position_count, .out_dtype = tokens.dtype()};
          Tensors found(2);
          if (context.needs(0)) found[0] = grouped_mm(g_RF, transpose(w, 1, 2), ends, options);
          if (context.needs(1))
            found[1] = expert_rows::multiply_published_transposed(b->exchange, tokens, positions, ends, g_RF, counts,
                                                                  compute_dtype(w.dtype()));
          return found;
        });
    return product(rows_RD, w_EDF);
  };
  return begun.dispatched;
}

}  // namespace tutti::parallel
