// Reduction: all_reduce, reduce and reduce_scatter.
#pragma once

#include <vector>

#include "tutti/comm/collective.h"
#include "tutti/comm/exchanges/dense.h"
#include "tutti/comm/exchanges/overlap.h"
#include "tutti/core/reduce_op.h"

namespace tutti::comm {

// Small buffers: every rank takes all of them and reduces all elements. Larger buffers are processed in pieces: every
// rank reduces its share of each piece, then the shares are gathered. In both cases the additions for an element follow
// the tree over ranks, so the bits do not depend on which way was chosen.
class Reduction final : public Collective {
 public:
  // In place on `tensor`. With root -1 the tensors of all ranks are written, else only that of the root.
  void begin_reduce(const CallRecord& call, const TransportTraits& traits, int rank, int ranks, const Tensor& tensor,
                    const ReduceOp& op, int root);
  // inputs[p] is this rank's contribution to rank p's output; output has the sizes of inputs[rank].
  void begin_scatter(const CallRecord& call, int rank, int ranks, const Tensor& output, std::vector<DenseInput> inputs,
                     const ReduceOp& op);
  // The same with the contributions as consecutive parts of one tensor.
  void begin_scatter_parts(const CallRecord& call, int rank, int ranks, const Tensor& output, const Tensor& input,
                           const ReduceOp& op);

  // Releases the tensors, but keeps the memory of its own lists for the next call.
  void forget();

  bool next(Exchange& exchange) override;
  std::byte* place_of(int peer) override {
    return under_way_ == Phase::gather ? output_.data() + share_begin(peer) : nullptr;
  }
  void receive(std::span<const Arrival> from) override;

 private:
  enum class Phase : uint8_t { factors, one_round, shares, gather, scatter, finished };

  void begin(const CallRecord& call, int rank, int ranks, DType dtype, const ReduceOp& op);
  void copy_what_is_overwritten();
  void begin_piece();
  int64_t share_begin(int rank) const;
  int64_t share_bytes(int rank) const;
  std::span<const ConstBlock> to_all_or_root(const ConstBlock& block);
  bool writes() const { return root_ < 0 || root_ == rank_; }

  int rank_ = 0;
  int ranks_ = 1;
  int root_ = -1;
  DType dtype_ = DType::f32;
  ReduceOp op_;
  Phase under_way_ = Phase::finished;
  Phase phase_ = Phase::finished;  // what comes next
  Phase first_ = Phase::finished;  // after the factors are known
  std::vector<DenseInput> inputs_;
  DenseOutput output_;
  const TransportTraits* traits_ = nullptr;
  int64_t piece_ = 0;  // where the piece under way begins, bytes
  int64_t piece_end_ = 0;
  std::byte* reduced_ = nullptr;    // where this rank's reduced elements go
  std::vector<std::byte> scratch_;  // of ranks that must not write their tensor
  double own_factor_ = 1.0;
  std::vector<double> factors_;  // premul_sum: of every rank
  ConstBlock first_offer_;
  std::vector<ConstBlock> offers_;
  std::vector<std::vector<std::byte>> copies_;  // copies of offers that overlap the output
  std::vector<int64_t> takes_;
  std::vector<const std::byte*> addends_;
};

}  // namespace tutti::comm
