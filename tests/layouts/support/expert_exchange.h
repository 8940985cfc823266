// Tokens on their way to the ranks that hold their experts, and back.
#pragma once

#include <functional>
#include <vector>

#include "tests/layouts/support/moe.h"
#include "tests/layouts/support/place.h"

namespace tutti::layouts {

class ExpertExchange {
 public:
  // `experts`: the expert of each slot of this rank's tokens. Tells every rank of ep what it will receive.
  ExpertExchange(const ModelConfig& config, const Place& place, const std::vector<int64_t>& experts);

  // The rows that this rank's experts take, of all ranks of ep: by expert, then by token in canonical order.
  Tensor dispatch(const Tensor& x_TD) const;
  // Each local expert on its rows.
  Tensor run_experts(const Tensor& rows, const std::function<ExpertWeights(int64_t expert)>& weights) const;
  // Row s of the result is what the expert of slot s made of it. Shape: [T * active, D].
  Tensor bring_back(const Tensor& outputs) const;

 private:
  const Place& place_;
  int64_t active_, first_expert_, end_expert_;
  std::vector<int64_t> slots_;            // sent rows: by rank, expert, token
  std::vector<int64_t> sent_, received_;  // rows per rank of ep
  std::vector<int64_t> expert_major_;     // received row at each place of the order by expert, rank, token
  std::vector<TokenRanges> counts_;       // per local expert
};

}  // namespace tutti::layouts
