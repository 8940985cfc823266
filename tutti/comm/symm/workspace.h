// Workspace: symmetric memory that ops borrow for the time of a call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tutti/comm/symm/group.h"
#include "tutti/comm/symm/handle.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

class WorkspacePool;

// A part of the group's workspace that nobody else has while this lives. Every rank has it at the same offset.
class WorkspaceLease {
 public:
  WorkspaceLease(std::shared_ptr<WorkspacePool> pool, std::shared_ptr<SymmHandle> handle, Tensor all, int64_t begin, int64_t end);
  ~WorkspaceLease();
  WorkspaceLease(WorkspaceLease&&) noexcept = default;
  WorkspaceLease& operator=(WorkspaceLease&&) = delete;

  const SymmHandle& handle() const { return *handle_; }
  int64_t offset() const { return begin_; }  // bytes from the handle's buffer
  int64_t nbytes() const { return end_ - begin_; }
  // Rank r's part as a contiguous tensor, `byte_offset` (a multiple of the itemsize) behind its begin.
  Tensor view(int rank, const Extents& sizes, DType dtype, int64_t byte_offset = 0) const;
  // Where rank r's part begins.
  std::byte* data(int rank) const;

 private:
  std::shared_ptr<WorkspacePool> pool_;
  std::shared_ptr<SymmHandle> handle_;
  Tensor all_;  // keeps the memory
  int64_t begin_;
  int64_t end_;
};

// The same in two steps, for who asks the other ranks in between whether they do the same: what is local, and what is
// collective if the workspace must grow.
class WorkspaceRequest {
 public:
  WorkspaceRequest(const SymmGroup& group, int64_t min_bytes);
  // Null when the workspace must grow first.
  const WorkspaceLease* lease() const { return lease_ ? &*lease_ : nullptr; }
  WorkspaceLease take();

 private:
  SymmGroup group_;
  int64_t nbytes_ = 0;
  std::shared_ptr<WorkspacePool> pool_;
  std::optional<WorkspaceLease> lease_;
  Tensor more_;  // memory by which the workspace is to grow
};

// At least `min_bytes`, 64-byte aligned, uninitialised. Collective only when the workspace grows, which all ranks notice
// alike as long as they borrow and give back in the same order. Two leases never overlap, so two ops may be under way.
WorkspaceLease get_symm_mem_workspace(const SymmGroup& group, int64_t min_bytes);

}  // namespace tutti::comm::symm
