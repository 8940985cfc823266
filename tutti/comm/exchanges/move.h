// Move: collectives that only move bytes (broadcast, gather, scatter, all_gather, all_to_all). One exchange.
#pragma once

#include <vector>

#include "tutti/comm/collective.h"
#include "tutti/comm/exchanges/dense.h"
#include "tutti/comm/exchanges/overlap.h"

namespace tutti::comm {

class Move final : public Collective {
 public:
  // Sets what this rank offers: one block for all, or one per rank. By default nothing.
  void offer(DenseInput input);                                        // to all
  void offer_parts(DenseInput input, std::span<const int64_t> bytes);  // consecutive parts, one per rank
  void offer_parts(DenseInput input, int64_t bytes_each);
  void offer_list(std::vector<DenseInput> inputs);  // one tensor per rank
  void offer_to(int rank, DenseInput input);        // to one rank
  // Sets where the data from each rank is written. By default nothing is taken.
  void take_parts(DenseOutput output, std::vector<int64_t> bytes);  // consecutive parts, one per rank
  void take_parts(DenseOutput output, int64_t bytes_each);
  void take_list(std::vector<DenseOutput> outputs);  // one tensor per rank
  void take_from(int rank, DenseOutput output);      // from one rank

  void begin(const CallRecord& call, int rank, int ranks);

  // The blocks that have been set for rank `p`, for engines that have no exchanges.
  ConstBlock offered_to(size_t p) const { return offers_.size() == 1 ? offers_[0] : offers_[p]; }
  std::span<std::byte> taken_from(size_t p) const {
    const int64_t bytes = targets_[p] == nullptr ? 0 : takes_.size() == 1 ? takes_[0] : takes_[p];
    return {targets_[p], static_cast<size_t>(bytes)};
  }

  // Releases the tensors, but keeps the memory of its own lists for the next call.
  void forget();

  bool next(Exchange& exchange) override;
  std::byte* place_of(int peer) override { return targets_[static_cast<size_t>(peer)]; }
  void receive(std::span<const Arrival> from) override;

 private:
  void copy_what_is_overwritten();

  size_t rank_ = 0;
  size_t ranks_ = 0;
  bool done_ = false;
  std::vector<DenseInput> inputs_;
  std::vector<DenseOutput> outputs_;
  std::vector<ConstBlock> offers_;
  std::vector<int64_t> takes_;
  std::vector<std::byte*> targets_;
  std::vector<std::vector<std::byte>> copies_;  // copies of offers that overlap outputs
};

}  // namespace tutti::comm
