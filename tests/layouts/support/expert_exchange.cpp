#include "tests/layouts/support/expert_exchange.h"

#include "tutti/ops/cat.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"

namespace tutti::layouts {

ExpertExchange::ExpertExchange(const ModelConfig& config, const Place& place, const std::vector<int64_t>& experts)
    : place_(place), active_(config.active_experts) {
  const int ranks = place.ep.size();
  const auto held_by = [&](int rank) { return tree_cut(config.experts, 1, rank, ranks, "experts"); };
  first_expert_ = held_by(place.ep.rank()).begin;
  end_expert_ = held_by(place.ep.rank()).end;
  // What is sent to each rank: the expert and the token range of every row.
  std::vector<int64_t> labels;
  for (int r = 0; r < ranks; ++r) {
    const size_t before = slots_.size();
    for (int64_t e = held_by(r).begin; e < held_by(r).end; ++e) {
      for (size_t s = 0; s < experts.size(); ++s) {
        if (experts[s] != e) continue;
        slots_.push_back(static_cast<int64_t>(s));
        labels.insert(labels.end(), {e, static_cast<int64_t>(s) / active_ / token_grain()});
      }
    }
    sent_.push_back(static_cast<int64_t>(slots_.size() - before));
  }
  const std::vector<int64_t> one_each(static_cast<size_t>(ranks), 1);
  const Tensor counts = place.ep.all_to_all(index_tensor(sent_), one_each, one_each);
  received_.assign(counts.data<int64_t>(), counts.data<int64_t>() + ranks);
  const Tensor arrived = place.ep.all_to_all(reshape(index_tensor(labels), {-1, 2}), sent_, received_);

  const int64_t ranges = place.local_tokens() / token_grain();
  const TokenRanges none(static_cast<size_t>(ranks), std::vector<int32_t>(static_cast<size_t>(ranges)));
  counts_.assign(static_cast<size_t>(end_expert_ - first_expert_), none);
  std::vector<std::vector<int64_t>> of_expert(counts_.size());
  const int64_t* label = arrived.data<int64_t>();
  int64_t row = 0;
  for (size_t source = 0; source < received_.size(); ++source) {
    for (int64_t i = 0; i < received_[source]; ++i, ++row, label += 2) {
      const size_t expert = static_cast<size_t>(label[0] - first_expert_);
      ++counts_[expert][source][static_cast<size_t>(label[1])];
      of_expert[expert].push_back(row);
    }
  }
  for (const auto& rows : of_expert) expert_major_.insert(expert_major_.end(), rows.begin(), rows.end());
}

Tensor ExpertExchange::dispatch(const Tensor& x_TD) const {
  return permuted_rows(place_.ep.all_to_all(rows_of_slots(x_TD, active_, slots_), sent_, received_), expert_major_);
}

Tensor ExpertExchange::run_experts(const Tensor& rows,
                                   const std::function<ExpertWeights(int64_t expert)>& weights) const {
  std::vector<Tensor> outputs;
  int64_t begin = 0;
  for (int64_t e = first_expert_; e < end_expert_; ++e) {
    const auto& counts = counts_[static_cast<size_t>(e - first_expert_)];
    const int64_t count = rows_in(counts);
    outputs.push_back(expert_forward(narrow(rows, 0, begin, count), weights(e), counts));
    begin += count;
  }
  return cat(outputs, 0);
}

Tensor ExpertExchange::bring_back(const Tensor& outputs) const {
  std::vector<int64_t> by_rank(expert_major_.size()), row_of_slot(slots_.size());
  for (size_t i = 0; i < expert_major_.size(); ++i)
    by_rank[static_cast<size_t>(expert_major_[i])] = static_cast<int64_t>(i);
  for (size_t i = 0; i < slots_.size(); ++i) row_of_slot[static_cast<size_t>(slots_[i])] = static_cast<int64_t>(i);
  return permuted_rows(place_.ep.all_to_all(permuted_rows(outputs, by_rank), received_, sent_), row_of_slot);
}

}  // namespace tutti::layouts
