#include "tests/layouts/support/expert_exchange.h"

#include "tests/layouts/support/function.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/slice.h"

namespace tutti::layouts {
namespace {

// counts[r] rows of x go to rank r of ep; what comes is put one after another.
Tensor exchanged(const Axis& ep, const Tensor& x, const std::vector<int64_t>& counts) {
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t n : counts) {
    parts.push_back(narrow(x, 0, begin, n));
    begin += n;
  }
  return cat(ep.all_to_all(parts), 0);
}

}  // namespace

ExpertExchange::ExpertExchange(const ModelConfig& config, const Place& place, const std::vector<int64_t>& experts)
    : place_(place), active_(config.active_experts) {
  const int ranks = place.ep.size();
  const auto held_by = [&](int rank) { return tree_cut(config.experts, 1, rank, ranks, "experts"); };
  first_expert_ = held_by(place.ep.rank()).begin;
  end_expert_ = held_by(place.ep.rank()).end;
  // What is sent to each rank: the expert and the token range of every row.
  std::vector<Tensor> labels;
  for (int r = 0; r < ranks; ++r) {
    std::vector<int64_t> label;
    for (int64_t e = held_by(r).begin; e < held_by(r).end; ++e) {
      for (size_t s = 0; s < experts.size(); ++s) {
        if (experts[s] != e) continue;
        slots_.push_back(static_cast<int64_t>(s));
        label.insert(label.end(), {e, static_cast<int64_t>(s) / active_ / token_grain()});
      }
    }
    sent_.push_back(static_cast<int64_t>(label.size()) / 2);
    labels.push_back(index_tensor(label));
  }
  const int64_t ranges = place.local_tokens() / token_grain();
  const TokenRanges none(static_cast<size_t>(ranks), std::vector<int32_t>(static_cast<size_t>(ranges)));
  counts_.assign(static_cast<size_t>(end_expert_ - first_expert_), none);
  std::vector<std::vector<int64_t>> of_expert(counts_.size());
  int64_t row = 0;
  size_t source = 0;
  for (const Tensor& label : place.ep.all_to_all(labels)) {
    const int64_t n = label.numel() / 2;
    for (int64_t i = 0; i < n; ++i, ++row) {
      const size_t expert = static_cast<size_t>(label.data<int64_t>()[2 * i] - first_expert_);
      ++counts_[expert][source][static_cast<size_t>(label.data<int64_t>()[2 * i + 1])];
      of_expert[expert].push_back(row);
    }
    received_.push_back(n);
    ++source;
  }
  for (const auto& rows : of_expert) expert_major_.insert(expert_major_.end(), rows.begin(), rows.end());
}

// Its gradient is the exchange the other way.
Tensor ExpertExchange::exchange_rows(const Tensor& x, const std::vector<int64_t>& send, const std::vector<int64_t>& receive) const {
  if (place_.ep.size() == 1) return x;
  return function(
      "exchange_rows", {x}, [&] { return exchanged(place_.ep, detach(x), send); },
      [&ep = place_.ep, receive](const Tensor& g) -> std::vector<Tensor> { return {exchanged(ep, g, receive)}; });
}

Tensor ExpertExchange::dispatch(const Tensor& x_TD) const {
  return permuted_rows(exchange_rows(rows_of_slots(x_TD, active_, slots_), sent_, received_), expert_major_);
}

Tensor ExpertExchange::run_experts(const Tensor& rows, const std::function<ExpertWeights(int64_t expert)>& weights) const {
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
  for (size_t i = 0; i < expert_major_.size(); ++i) by_rank[static_cast<size_t>(expert_major_[i])] = static_cast<int64_t>(i);
  for (size_t i = 0; i < slots_.size(); ++i) row_of_slot[static_cast<size_t>(slots_[i])] = static_cast<int64_t>(i);
  return permuted_rows(exchange_rows(permuted_rows(outputs, by_rank), received_, sent_), row_of_slot);
}

}  // namespace tutti::layouts
