// A tensor of every rank, readable by all ranks for the time of an op.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tutti/comm/reduce_op.h"
#include "tutti/comm/symm/workspace.h"

namespace tutti::comm::symm {

// A tensor in symmetric memory is read where it is; another is copied into the group's workspace. It must be one or the
// other on all ranks. Contiguous, on the host, the same number of bytes everywhere.
class Published {
 public:
  // Room for `capacity` bytes where it is copied (all ranks give the same); -1: the tensor's.
  Published(const char* op, const Tensor& local, const SymmGroup& group, int64_t capacity = -1);
  const SymmHandle& handle() const { return *handle_; }
  std::byte* data(int rank) const { return data_[static_cast<size_t>(rank)]; }
  // All ranks, on a channel of this op's own. The first makes the tensors readable; after the last they may change.
  void barrier() const { handle_->barrier(channel_->channel()); }
  // data(r) + byte_offset of all ranks, in rank order.
  std::vector<const std::byte*> at(int64_t byte_offset) const;

 private:
  std::optional<WorkspaceLease> lease_;
  std::shared_ptr<SymmHandle> kept_;
  const SymmHandle* handle_ = nullptr;
  std::optional<ChannelLease> channel_;
  std::vector<std::byte*> data_;
};

// UsageError unless values of `dtype` can be reduced so by these ops (premul_sum, which needs every rank's factor, cannot).
void check_reducible(const char* op, const ReduceOp& reduce, DType dtype);
// UsageError unless the group's backend has memory that the host can read.
void check_host_access(const char* op, const SymmGroup& group);

}  // namespace tutti::comm::symm
