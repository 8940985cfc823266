// scan: rank r gets the reduction of the tensors of ranks 0 to r, in place, as MPI_Scan has it.
//
// 1. With premul_sum, all ranks tell each other their factors.
// 2. Each rank sends its tensor to itself and to all ranks after it.
// 3. Each rank combines what it has received in rank order, over the same tree as an all_reduce of that many ranks.
// Bytes sent by rank r: (W - 1 - r) n elements.
#include <cstring>

#include "tutti/codegen/combine.h"
#include "tutti/comm/collective.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/dense.h"

namespace tutti::comm {
namespace {

class Scan final : public Collective {
 public:
  Scan(const CallRecord& call, const CallPart& part)
      : output_(part.output(), true),
        dtype_(part.output().dtype()),
        op_(part.call.reduce),
        rank_(part.rank()),
        ranks_(static_cast<size_t>(part.seat.ranks)),
        own_factor_(op_.factor()) {
    record = call;
    next_ = op_.kind() == ReduceKind::premul_sum ? Phase::factors : Phase::values;
  }

  bool next(Exchange& exchange) override {
    under_way_ = next_;
    switch (under_way_) {
      case Phase::factors:
        factors_.resize(ranks_);
        offers_.assign(1, {reinterpret_cast<const std::byte*>(&own_factor_), sizeof own_factor_});
        takes_.assign(1, sizeof own_factor_);
        next_ = Phase::values;
        break;
      case Phase::values:
        received_.assign(rank_ + 1, std::vector<std::byte>(static_cast<size_t>(output_.bytes())));
        offers_.assign(ranks_, {});
        takes_.assign(ranks_, 0);
        for (size_t p = rank_; p < ranks_; ++p) offers_[p] = {output_.data(), output_.bytes()};
        for (size_t p = 0; p <= rank_; ++p) takes_[p] = output_.bytes();
        next_ = Phase::finished;
        break;
      case Phase::finished:
        finish();
        return false;
    }
    exchange.offers = offers_;
    exchange.takes = takes_;
    return true;
  }

  std::byte* place_of(int peer) override {
    return under_way_ == Phase::values && static_cast<size_t>(peer) <= rank_
               ? received_[static_cast<size_t>(peer)].data()
               : nullptr;
  }

  void receive(std::span<const Arrival> from) override {
    for (size_t p = 0; p < from.size(); ++p) {
      if (from[p].bytes == 0) continue;
      std::byte* to = under_way_ == Phase::factors ? reinterpret_cast<std::byte*>(&factors_[p]) : received_[p].data();
      to += from[p].offset;
      if (to != from[p].data) std::memcpy(to, from[p].data, static_cast<size_t>(from[p].bytes));
    }
  }

 private:
  enum class Phase : uint8_t { factors, values, finished };

  void finish() {
    std::vector<const std::byte*> addends;
    for (const auto& values : received_) addends.push_back(values.data());
    if (!factors_.empty()) factors_.resize(addends.size());
    if (output_.bytes() > 0)
      combine(op_.kind(), dtype_, addends, factors_, output_.bytes() / itemsize(dtype_), output_.data());
    output_.finish();
  }

  DenseOutput output_;
  const DType dtype_;
  const ReduceOp op_;
  const size_t rank_, ranks_;
  const double own_factor_;
  Phase under_way_ = Phase::finished;
  Phase next_;
  std::vector<double> factors_;  // premul_sum: of every rank
  std::vector<std::vector<std::byte>> received_;
  std::vector<ConstBlock> offers_;
  std::vector<int64_t> takes_;
};

}  // namespace
}  // namespace tutti::comm

TUTTI_COLLECTIVE(scan){
    .name = "scan",
    .outputs = Given::share,
    .in_place = InPlace::all_ranks,
    .reduces = true,
    .described = TensorSide::output,
    .make = [](const CallRecord& record, const CallPart& part) -> std::unique_ptr<Collective> {
      return std::make_unique<tutti::comm::Scan>(record, part);
    },
    .source = [](int64_t i, int64_t, const Seat& seat, int) { return Source{0, seat.rank + 1, i}; },
    // This is the mean over the ranks.
    .wire = [](double ranks) { return (ranks - 1) / 2; },
};
