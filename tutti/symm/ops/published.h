// A tensor of every rank, readable by all ranks for the time of an op.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "tutti/runtime/function_ref.h"
#include "tutti/symm/ops/op_call.h"
#include "tutti/symm/workspace.h"

namespace tutti::comm::symm {

// Made when all ranks have agreed on the call and the bytes of all of them are there; call.finish() says that they may
// change again. One meeting of the ranks where what is needed is at hand, two when memory has to be met for first.
class Published {
 public:
  // A tensor in symmetric memory is read where it is; another is copied into the group's workspace. It must be one or
  // the other on all ranks. Room for `capacity` bytes where it is copied (all ranks give the same); -1: the tensor's.
  Published(OpCall& call, const Tensor& local, int64_t capacity = -1);
  // `nbytes` of workspace that fill() writes.
  Published(OpCall& call, int64_t nbytes, FunctionRef<void(std::byte* own)> fill) { borrow(call, nbytes, fill); }

  std::byte* data(int rank) const { return data_[static_cast<size_t>(rank)]; }
  // data(r) + byte_offset of all ranks, in rank order.
  std::vector<const std::byte*> at(int64_t byte_offset) const;

 private:
  void borrow(OpCall& call, int64_t nbytes, FunctionRef<void(std::byte* own)> fill);
  void read_in_place(OpCall& call, const Tensor& local);

  std::optional<WorkspaceLease> lease_;
  std::shared_ptr<SymmHandle> kept_;
  std::vector<std::byte*> data_;
};

}  // namespace tutti::comm::symm
