#include "tutti/parallel/expert_parallel.h"

#include <algorithm>
#include <bit>
#include <map>

#include "tutti/comm/functional/functional.h"
#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/nn/moe.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/scan.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/squeeze.h"
#include "tutti/ops/sum_to.h"
#include "tutti/ops/where.h"
#include "tutti/parallel/divided_values.h"
#include "tutti/parallel/expert_memory.h"
#include "tutti/parallel/shared_dispatchers.h"
#include "tutti/parallel/token_places.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/numerics.h"

namespace tutti::parallel {

namespace functional = comm::functional;

namespace {

// Layers with as many experts share one, by that number.
using Memories = std::map<int64_t, std::shared_ptr<ExpertMemory>>;

std::shared_ptr<ExpertMemory> memory_for(Memories& memories, const std::shared_ptr<comm::ProcessGroup>& group,
                                         int64_t experts, const ExpertParallelOptions& options) {
  std::shared_ptr<ExpertMemory>& memory = memories[experts];
  if (memory == nullptr) {
    memory = std::make_shared<ExpertMemory>(
        group, experts,
        ExpertMemory::Options{.reads_tokens = options.exchange == ExpertExchange::gather_on_read,
                              .poisons = poisons_expert_rows()});
  }
  return memory;
}

std::unique_ptr<nn::TokenDispatcher> make_dispatcher(Memories& memories,
                                                     const std::shared_ptr<comm::ProcessGroup>& group, int64_t experts,
                                                     const ExpertParallelOptions& options) {
  switch (options.exchange) {
    case ExpertExchange::direct_store:
      return std::make_unique<DirectStoreDispatcher>(memory_for(memories, group, experts, options), options.max_tokens);
    case ExpertExchange::gather_on_read:
      return std::make_unique<GatherOnReadDispatcher>(memory_for(memories, group, experts, options),
                                                      options.max_tokens);
    default:
      return std::make_unique<ExchangeDispatcher>(group, experts, options);
  }
}

}  // namespace

void expert_parallel(nn::Module& module, const dist::Mesh& mesh, const ExpertParallelOptions& options) {
  TUTTI_CHECK(mesh->ndim() == 1, "expert_parallel: {} has {} dims; expected one, take mesh->slice({{\"ep\"}})",
              mesh->to_string(), mesh->ndim());
  TUTTI_CHECK(mesh->has_coordinate(), "expert_parallel: rank {} is not in {}; call it on the ranks of the mesh only",
              mesh->rank(), mesh->to_string());
  TUTTI_CHECK(options.max_tokens >= 0, "expert_parallel: max_tokens = {}; expected 0 or more", options.max_tokens);
  TUTTI_CHECK(std::has_single_bit(static_cast<uint64_t>(mesh->size())) || numerics_mode() == NumericsMode::fast,
              "expert_parallel: {} ranks; a gradient of their tokens is a node of the tree over virtual shards where "
              "they are a power of two, or use fast numerics",
              mesh->size());
  const std::vector<nn::NamedMoE> layers = nn::moe_layers(module);
  for (const nn::NamedMoE& moe : layers) {
    const int64_t experts = moe.layer->options().router.num_experts;
    TUTTI_CHECK(experts % mesh->size() == 0,
                "expert_parallel: '{}' has {} experts, which {} ranks cannot divide equally; expected a divisor of {}",
                moe.name, experts, mesh->size(), experts);
  }
  Memories memories;
  if (mesh->size() > 1 && options.exchange >= ExpertExchange::direct_store) {
    for (const nn::NamedMoE& moe : layers)
      memory_for(memories, mesh->group(), moe.layer->options().router.num_experts, options);
  }
  const MemoryCategoryScope category(MemoryCategory::parameters);
  for (const nn::NamedMoE& moe : layers) {
    for (const auto& [name, parameter] : moe.layer->experts->named_parameters())
      hold_divided(parameter, divided_values(parameter, mesh, {dist::shard(0)}));
    if (mesh->size() > 1)
      moe.layer->set_dispatcher(
          make_dispatcher(memories, mesh->group(), moe.layer->options().router.num_experts, options));
  }
}

ExchangeDispatcher::ExchangeDispatcher(std::shared_ptr<comm::ProcessGroup> group, int64_t experts,
                                       const ExpertParallelOptions& options)
    : group_(std::move(group)),
      experts_(experts),
      options_(options),
      places_(std::make_unique<TokenPlaces>("ExchangeDispatcher", group_, experts, options.max_tokens)) {}
ExchangeDispatcher::~ExchangeDispatcher() = default;

namespace {

// As many rows as come to this rank, read on the host; a plan, where nobody sends any, counts those of equal loads.
SymInt exact_room(const comm::ProcessGroup& group, const Tensor& of_others_WE, const SymInt& slots) {
  if (group.backend(DeviceKind::cpu).name() == "fake") return slots;
  return static_cast<int64_t>(sum(of_others_WE).item());
}

}  // namespace

// A row travels with its expert and its place among the tokens of all ranks, as one number: expert * places + place.
// What is not a row of anybody is behind all of them when these are sorted.
nn::Dispatched ExchangeDispatcher::dispatch(const Tensor& x_TD, const nn::Routing& routing, SymInt most_tokens) const {
  const int64_t ranks = group_->size(), own_experts = experts_ / ranks;
  const SymInt T = x_TD.size(0), K = routing.expert_ids_TK.size(1);
  const int64_t grain = token_grain();
  const SymInt most = places_->most(T, K, most_tokens), stride = TokenPlaces::stride(most, grain),
               places = ranks * stride;

  nn::Dispatched result{.order = sort_slots(routing.expert_ids_TK)};
  const Tensor counts_WE = reshape(routing.tokens_per_expert_E, {ranks, own_experts});
  const Tensor splits_W = sum(counts_WE, {.dims = {1}});
  const Tensor letters = cat({counts_WE, full({ranks, 1}, static_cast<double>(grain), DType::i64)}, 1);
  const Tensor of_others = reshape(functional::all_to_all_single(reshape(letters, {ranks * (own_experts + 1)}), group_),
                                   {ranks, own_experts + 1});
  const Tensor of_others_WE = narrow(of_others, 1, 0, own_experts),
               grains_W = squeeze(narrow(of_others, 1, own_experts, 1), 1);
  const SymInt capacity = options_.exchange == ExpertExchange::standard_exact
                              ? exact_room(*group_, of_others_WE, T * K)
                              : ranks * most * std::min(K.value(), own_experts);
  const Tensor expert_N = index_select(reshape(routing.expert_ids_TK, {T * K}), 0, result.order.slot_of_row);
  const Tensor key_N =
      add(mul(expert_N, places), places_of_rows(result.order, grains_W, group_->rank(), stride, grain));
  const functional::PaddedRows rows =
      functional::all_to_all_v_padded_single(dispatch_rows(x_TD, result.order), splits_W, capacity, group_);
  const functional::PaddedRows keys = functional::all_to_all_v_padded_single(key_N, splits_W, capacity, group_);
  const Tensor is_row_R = lt(arange(capacity), sum(rows.output_splits));
  const Tensor key_R = where(is_row_R, keys.output, experts_ * places);

  result.arrived = rows.output_splits;
  result.arrival = sort_slots(unsqueeze(key_R, 1));
  result.experts = {.rows_ND = dispatch_rows(rows.output, result.arrival),
                    .offsets_E = cumsum(sum(of_others_WE, {.dims = {0}}), 0),
                    .positions_N = remainder(index_select(key_R, 0, result.arrival.slot_of_row), places),
                    .position_count = places};
  return result;
}

Tensor ExchangeDispatcher::combine(const Tensor& outputs_RD, const nn::Dispatched& dispatched,
                                   const nn::Routing& routing) const {
  const Tensor as_arrived_RD = combine_rows(outputs_RD, dispatched.arrival);
  const SymInt slots = routing.expert_ids_TK.size(0) * routing.expert_ids_TK.size(1);
  const functional::PaddedRows back =
      functional::all_to_all_v_padded_single(as_arrived_RD, dispatched.arrived, slots, group_);
  return combine_rows(back.output, dispatched.order, routing.weights_TK);
}

}  // namespace tutti::parallel
