// OpCall: one call of an op on symmetric memory, from the moment its group is known until no rank reads any more.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "tutti/symm/call_board.h"
#include "tutti/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

// Ops of one group come one at a time on a rank; another thread's waits until this one is over.
class OpCall {
 public:
  // Collective at the first op of a group. UsageError unless the group's backend has memory that the host can read.
  OpCall(SymmOp op, const SymmGroup& group);

  OpRecord record;  // what agree() says
  const SymmGroup& group() const { return group_; }
  int rank() const { return group_.rank(); }
  int ranks() const { return group_.size(); }
  const char* name() const { return name_of(record.op).data(); }

  // Check the arguments and describe the call; what they throw, the other ranks are told.
  void takes(const Tensor& input);
  void reduces(const ReduceOp& reduce);

  // See CallBoard.
  void agree(std::span<const int64_t> numbers = {});
  int64_t number_of(int rank, int i) const;  // the i-th that `rank` gave to the last agree()
  void meet();
  // The last meeting.
  void finish();
  // For what throws on all ranks or on none.
  template <class Fn>
  auto together(const Fn& fn) {
    stage_ = Stage::together;
    auto result = fn();
    stage_ = Stage::agreed;
    return result;
  }
  // This rank has thrown `error`. The others throw, too, unless they have thrown it as well.
  void ended_by(const std::exception& error);

 private:
  enum class Stage : uint8_t { alone, together, agreed, finished };
  SymmGroup group_;
  std::unique_lock<std::mutex> turn_;
  std::shared_ptr<CallBoard> board_;  // null in a group of one
  std::vector<int64_t> own_numbers_;
  Stage stage_ = Stage::alone;
};

// Makes a call: body(call) says what it takes, agrees with the other ranks, and does it.
template <class Body>
auto make_call(SymmOp op, const SymmGroup& group, const Body& body) {
  OpCall call(op, group);
  try {
    return body(call);
  } catch (const std::exception& error) {
    call.ended_by(error);
    throw;
  }
}

}  // namespace tutti::comm::symm
