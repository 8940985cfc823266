#include "tutti/comm/exchanges/move.h"

#include <cstring>

namespace tutti::comm {

void Move::begin(const CallRecord& call, int rank, int ranks) {
  record = call;
  rank_ = static_cast<size_t>(rank);
  ranks_ = static_cast<size_t>(ranks);
  done_ = false;
  offers_.assign(1, {});
  takes_.assign(1, 0);
  targets_.assign(ranks_, nullptr);
}

void Move::forget() {
  inputs_.clear();
  outputs_.clear();
  copies_.clear();
}

// One block for all may lie exactly where it is taken to: in the own slice of the output.
void Move::copy_what_is_overwritten() {
  const auto take = [this](size_t p) { return takes_.size() == 1 ? takes_[0] : takes_[p]; };
  for (ConstBlock& offer : offers_) {
    if (offer.bytes == 0) continue;
    bool stays = true;
    for (size_t p = 0; p < ranks_ && stays; ++p) {
      const bool is_own_slice =
          offers_.size() == 1 && p == rank_ && targets_[p] == offer.data && take(p) == offer.bytes;
      stays = targets_[p] == nullptr || is_own_slice || !WrittenRange{targets_[p], targets_[p] + take(p)}.meets(offer);
    }
    if (!stays) offer_a_copy(offer, copies_);
  }
}

void Move::offer(DenseInput input) {
  offers_.assign(1, {input.data(), input.bytes()});
  inputs_.push_back(std::move(input));
}

void Move::offer_parts(DenseInput input, std::span<const int64_t> bytes) {
  offers_.resize(ranks_);
  const std::byte* at = input.data();
  for (size_t p = 0; p < ranks_; ++p) {
    offers_[p] = {at, bytes[p]};
    at += bytes[p];
  }
  inputs_.push_back(std::move(input));
}

void Move::offer_parts(DenseInput input, int64_t bytes_each) {
  offers_.resize(ranks_);
  for (size_t p = 0; p < ranks_; ++p) offers_[p] = {input.data() + static_cast<int64_t>(p) * bytes_each, bytes_each};
  inputs_.push_back(std::move(input));
}

void Move::offer_list(std::vector<DenseInput> inputs) {
  inputs_ = std::move(inputs);
  offers_.resize(ranks_);
  for (size_t p = 0; p < ranks_; ++p) offers_[p] = {inputs_[p].data(), inputs_[p].bytes()};
}

void Move::offer_to(int rank, DenseInput input) {
  offers_.assign(ranks_, {});
  offers_[static_cast<size_t>(rank)] = {input.data(), input.bytes()};
  inputs_.push_back(std::move(input));
}

void Move::take_parts(DenseOutput output, std::vector<int64_t> bytes) {
  takes_ = std::move(bytes);
  std::byte* at = output.data();
  for (size_t p = 0; p < ranks_; ++p) {
    targets_[p] = at;
    at += takes_[p];
  }
  outputs_.push_back(std::move(output));
}

void Move::take_parts(DenseOutput output, int64_t bytes_each) {
  takes_.assign(1, bytes_each);
  for (size_t p = 0; p < ranks_; ++p) targets_[p] = output.data() + static_cast<int64_t>(p) * bytes_each;
  outputs_.push_back(std::move(output));
}

void Move::take_list(std::vector<DenseOutput> outputs) {
  outputs_ = std::move(outputs);
  takes_.resize(ranks_);
  for (size_t p = 0; p < ranks_; ++p) {
    takes_[p] = outputs_[p].bytes();
    targets_[p] = outputs_[p].data();
  }
}

void Move::take_from(int rank, DenseOutput output) {
  takes_.assign(ranks_, 0);
  takes_[static_cast<size_t>(rank)] = output.bytes();
  targets_[static_cast<size_t>(rank)] = output.data();
  outputs_.push_back(std::move(output));
}

bool Move::next(Exchange& exchange) {
  if (done_) {
    for (DenseOutput& output : outputs_) output.finish();
    return false;
  }
  done_ = true;
  if (ranks_ > 1) copy_what_is_overwritten();
  exchange.offers = offers_;
  exchange.takes = takes_;
  return true;
}

void Move::receive(std::span<const Arrival> from) {
  for (size_t p = 0; p < from.size(); ++p) {
    const Arrival& part = from[p];
    if (part.bytes == 0) continue;
    std::byte* to = targets_[p] + part.offset;
    // The own part may already lie where it belongs (an input that is a slice of the output).
    if (to != part.data) std::memcpy(to, part.data, static_cast<size_t>(part.bytes));
  }
}

}  // namespace tutti::comm
