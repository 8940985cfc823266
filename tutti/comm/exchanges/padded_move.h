// PaddedMove: an all_to_all of rows whose receivers do not know how many they get, but have room for as many as may
// come.
//
// 1. Every rank tells all others how many rows it has room for and how many it sends to each rank: 8 (W + 1) bytes to
// each.
// 2. The rows are moved.
// After the first exchange all ranks have the same table. A rank that would get more rows than it has room for is
// therefore an error on all ranks, before anything is written.
#pragma once

#include <vector>

#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/move.h"

namespace tutti::comm {

class PaddedMove final : public Collective {
 public:
  // Inputs and outputs of the call are Given::padded; the splits of the input are read here.
  PaddedMove(const CallRecord& call, const CallPart& part);

  bool next(Exchange& exchange) override;
  std::byte* place_of(int peer) override { return under_way_ == Phase::move ? move_.place_of(peer) : nullptr; }
  void receive(std::span<const Arrival> from) override;

 private:
  enum class Phase : uint8_t { tell, move, finish };

  // The numbers that rank `p` has sent: its room in front, then its splits.
  int64_t* told_by(size_t p) { return table_.data() + p * (ranks_ + 1); }
  int64_t room_of(size_t p) { return told_by(p)[0]; }
  int64_t rows(size_t from, size_t to) { return told_by(from)[1 + to]; }
  void check_room();
  void begin_move();

  const size_t rank_, ranks_;
  const DType dtype_;
  const int64_t row_bytes_;
  const DenseInput input_;
  DenseOutput output_, output_splits_;
  Phase under_way_ = Phase::tell;
  Phase next_ = Phase::tell;
  std::vector<int64_t> table_;
  ConstBlock own_;
  int64_t taken_bytes_ = 0;
  Move move_;
};

}  // namespace tutti::comm
