#include "tutti/symm/ops/op_call.h"

#include "tutti/core/error.h"
#include "tutti/symm/backend.h"
#include "tutti/symm/group_state.h"

namespace tutti::comm::symm {

OpCall::OpCall(SymmOp op, const SymmGroup& group) : group_(group) {
  record.op = op;
  TUTTI_CHECK(group, "{}: no group is given", name());
  const BackendTraits& traits = find_backend(group.backend()).traits();
  TUTTI_CHECK(traits.host_access,
              "{}: the host cannot read memory of backend {}; native and threads have what this op needs", name(),
              traits.name);
  GroupState& state = *group.state();
  turn_ = std::unique_lock(state.ops);
  if (ranks() == 1) return;
  if (!state.board) state.board = std::make_shared<CallBoard>(group);
  board_ = state.board;
  board_->begin_op();
}

void OpCall::takes(const Tensor& input) {
  TUTTI_CHECK(input.defined(), "{}: the input is undefined", name());
  record.describe_tensor(input.dtype(), input.extents());
  TUTTI_CHECK(input.is_contiguous() && input.device() == kCpu, "{}: the input {} must be contiguous and on the host",
              name(), describe(input));
}

void OpCall::reduces(const ReduceOp& reduce) {
  record.reduce = reduce.kind();
  const std::string reason = why_not_reducible(reduce.kind(), record.dtype);
  TUTTI_CHECK(reason.empty(), "{}: {}", name(), reason);
  TUTTI_CHECK(reduce.kind() != ReduceKind::premul_sum,
              "{}: premul_sum needs the factors of all ranks; scale the input first", name());
}

void OpCall::agree(std::span<const int64_t> numbers) {
  stage_ = Stage::together;
  if (board_) board_->agree(record, numbers);
  else own_numbers_.assign(numbers.begin(), numbers.end());
  stage_ = Stage::agreed;
}

int64_t OpCall::number_of(int rank, int i) const {
  const std::span<const int64_t> numbers = board_ ? board_->numbers_of(rank) : own_numbers_;
  return numbers[static_cast<size_t>(i)];
}

void OpCall::meet() {
  stage_ = Stage::together;
  if (board_) board_->meet();
  stage_ = Stage::agreed;
}

void OpCall::finish() {
  meet();
  stage_ = Stage::finished;
}

void OpCall::ended_by(const std::exception& error) {
  if (!board_) return;
  // The others have not begun, and the next call meets theirs.
  if (stage_ == Stage::alone) board_->refuse(record, error);
  // The others count on this rank: for its part of the result, or not to change what they read.
  if (stage_ == Stage::agreed)
    board_->fail(fmt::format("rank {} failed in {}: {}", rank(), symm::describe(record), error.what()));
}

}  // namespace tutti::comm::symm
