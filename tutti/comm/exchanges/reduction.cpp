#include "tutti/comm/exchanges/reduction.h"

#include <algorithm>
#include <cstring>

#include "tutti/codegen/combine.h"

namespace tutti::comm {
namespace {

constexpr int64_t kAligned = 64;

}  // namespace

void Reduction::begin(const CallRecord& call, int rank, int ranks, DType dtype, const ReduceOp& op) {
  record = call;
  rank_ = rank;
  ranks_ = ranks;
  dtype_ = dtype;
  op_ = op;
  own_factor_ = op.factor();
  root_ = -1;
  factors_.clear();
  addends_.resize(static_cast<size_t>(ranks));
}

void Reduction::forget() {
  inputs_.clear();
  output_ = {};
  copies_.clear();
}

void Reduction::begin_reduce(const CallRecord& call, const TransportTraits& traits, int rank, int ranks,
                             const Tensor& tensor, const ReduceOp& op, int root) {
  begin(call, rank, ranks, tensor.dtype(), op);
  root_ = root;
  output_ = DenseOutput(tensor, true);
  const int64_t bytes = output_.bytes();
  first_ = bytes <= traits.one_round_bytes || ranks == 1 ? Phase::one_round : Phase::shares;
  traits_ = &traits;
  piece_ = piece_end_ = 0;
  phase_ = op.kind() == ReduceKind::premul_sum ? Phase::factors : first_;
}

void Reduction::begin_scatter(const CallRecord& call, int rank, int ranks, const Tensor& output,
                              std::vector<DenseInput> inputs, const ReduceOp& op) {
  begin(call, rank, ranks, output.dtype(), op);
  inputs_ = std::move(inputs);
  output_ = DenseOutput(output);
  offers_.clear();
  for (const DenseInput& input : inputs_) offers_.push_back({input.data(), input.bytes()});
  copy_what_is_overwritten();
  first_ = Phase::scatter;
  phase_ = op.kind() == ReduceKind::premul_sum ? Phase::factors : first_;
}

void Reduction::begin_scatter_parts(const CallRecord& call, int rank, int ranks, const Tensor& output,
                                    const Tensor& input, const ReduceOp& op) {
  begin(call, rank, ranks, output.dtype(), op);
  inputs_.emplace_back(input);
  output_ = DenseOutput(output);
  offers_.clear();
  for (int p = 0; p < ranks; ++p) offers_.push_back({inputs_[0].data() + p * output_.bytes(), output_.bytes()});
  copy_what_is_overwritten();
  first_ = Phase::scatter;
  phase_ = op.kind() == ReduceKind::premul_sum ? Phase::factors : first_;
}

// Only this rank reads its own addend, and each element before it is overwritten.
void Reduction::copy_what_is_overwritten() {
  const WrittenRange written{output_.data(), output_.data() + output_.bytes()};
  for (int p = 0; p < ranks_; ++p) {
    ConstBlock& offer = offers_[static_cast<size_t>(p)];
    if (written.meets(offer) && !(p == rank_ && offer.data == written.begin)) offer_a_copy(offer, copies_);
  }
}

// Where the bytes of the piece under way that rank `rank` reduces begin: shares begin at cache lines.
int64_t Reduction::share_begin(int rank) const {
  const int64_t bytes = piece_end_ - piece_;
  const int64_t share = ((bytes + ranks_ - 1) / ranks_ + kAligned - 1) / kAligned * kAligned;
  return piece_ + std::min(share * rank, bytes);
}

int64_t Reduction::share_bytes(int rank) const { return share_begin(rank + 1) - share_begin(rank); }

bool Reduction::next(Exchange& exchange) {
  under_way_ = phase_;
  if (phase_ == Phase::shares && piece_end_ == output_.bytes()) under_way_ = phase_ = Phase::finished;
  switch (phase_) {
    case Phase::factors:
      factors_.resize(static_cast<size_t>(ranks_));
      first_offer_ = {reinterpret_cast<const std::byte*>(&own_factor_), sizeof own_factor_};
      takes_.assign(1, sizeof own_factor_);
      phase_ = first_;
      exchange.offers = {&first_offer_, 1};
      break;
    case Phase::one_round:
      first_offer_ = {output_.data(), output_.bytes()};
      reduced_ = output_.data();
      phase_ = Phase::finished;
      exchange.offers = to_all_or_root(first_offer_);
      takes_.assign(1, writes() ? output_.bytes() : 0);
      exchange.overwrites_offers = writes();
      break;
    case Phase::shares:
      begin_piece();
      phase_ = Phase::gather;
      exchange.offers = offers_;
      takes_.assign(1, share_bytes(rank_));
      exchange.is_fresh = true;
      break;
    case Phase::gather:
      first_offer_ = {reduced_, share_bytes(rank_)};
      phase_ = Phase::shares;
      exchange.offers = to_all_or_root(first_offer_);
      takes_.assign(static_cast<size_t>(ranks_), 0);
      exchange.is_fresh = true;
      for (int p = 0; writes() && p < ranks_; ++p) takes_[static_cast<size_t>(p)] = share_bytes(p);
      break;
    case Phase::scatter:
      reduced_ = output_.data();
      phase_ = Phase::finished;
      exchange.offers = offers_;
      takes_.assign(1, output_.bytes());
      break;
    case Phase::finished:
      if (writes()) output_.finish();
      return false;
  }
  exchange.takes = takes_;
  return true;
}

// The next piece: what each rank is to reduce of it, and where this rank's result goes.
void Reduction::begin_piece() {
  piece_ = piece_end_;
  const int64_t left = output_.bytes() - piece_;
  const bool in_one = left / ranks_ >= traits_->one_piece_share_bytes;
  piece_end_ =
      piece_ + (in_one ? left : std::min(left, std::max(traits_->piece_bytes / kAligned * kAligned, kAligned)));
  offers_.clear();
  for (int p = 0; p < ranks_; ++p) offers_.push_back({output_.data() + share_begin(p), share_bytes(p)});
  reduced_ = output_.data() + share_begin(rank_);
  if (!writes()) {
    scratch_.resize(static_cast<size_t>(share_bytes(rank_)));
    reduced_ = scratch_.data();
  }
}

std::span<const ConstBlock> Reduction::to_all_or_root(const ConstBlock& block) {
  if (root_ < 0) return {&block, 1};
  offers_.assign(static_cast<size_t>(ranks_), {});
  offers_[static_cast<size_t>(root_)] = block;
  return offers_;
}

void Reduction::receive(std::span<const Arrival> from) {
  switch (under_way_) {
    case Phase::factors:
      for (size_t p = 0; p < from.size(); ++p) {
        if (from[p].bytes > 0) std::memcpy(&factors_[p], from[p].data, sizeof(double));
      }
      return;
    case Phase::gather:
      for (size_t p = 0; p < from.size(); ++p) {
        if (from[p].bytes == 0) continue;
        std::byte* to = output_.data() + share_begin(static_cast<int>(p)) + from[p].offset;
        if (to != from[p].data) std::memcpy(to, from[p].data, static_cast<size_t>(from[p].bytes));
      }
      return;
    default:
      for (size_t p = 0; p < from.size(); ++p) {
        if (from[p].bytes == 0) return;  // nothing to reduce, or a transport that moves no data
        addends_[p] = from[p].data;
      }
      combine(op_.kind(), dtype_, addends_, factors_, from[0].bytes / itemsize(dtype_), reduced_ + from[0].offset);
  }
}

}  // namespace tutti::comm
