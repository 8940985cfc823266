// Workspace: symmetric memory that ops borrow for the duration of a call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tutti/symm/group.h"
#include "tutti/symm/handle.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

class WorkspacePool;

// Exclusive use of a part of the group's workspace while this object lives. It has the same offset on every rank.
class WorkspaceLease {
 public:
  WorkspaceLease(std::shared_ptr<WorkspacePool> pool, std::shared_ptr<SymmHandle> handle, Tensor all, int64_t begin,
                 int64_t end);
  ~WorkspaceLease();
  WorkspaceLease(WorkspaceLease&&) noexcept = default;
  WorkspaceLease& operator=(WorkspaceLease&&) = delete;

  const SymmHandle& handle() const { return *handle_; }
  int64_t offset() const { return begin_; }  // in bytes from the beginning of the handle's buffer
  int64_t nbytes() const { return end_ - begin_; }
  // Rank r's part as a contiguous tensor that starts at `byte_offset`, a multiple of the item size.
  Tensor view(int rank, const Extents& sizes, DType dtype, int64_t byte_offset = 0) const;
  // The address of rank r's part.
  std::byte* data(int rank) const;

 private:
  std::shared_ptr<WorkspacePool> pool_;
  std::shared_ptr<SymmHandle> handle_;
  Tensor all_;  // keeps the memory
  int64_t begin_;
  int64_t end_;
};

// get_symm_mem_workspace() in two steps, between which the caller can check that all ranks do the same: construction is
// local, take() is collective if the workspace must grow.
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

// Borrows at least `min_bytes` of workspace, 64-byte aligned and uninitialized. Collective only when the workspace must
// grow, which happens on all ranks alike as long as they borrow and return in the same order. Leases never overlap, so
// several ops may be in progress.
WorkspaceLease get_symm_mem_workspace(const SymmGroup& group, int64_t min_bytes);

}  // namespace tutti::comm::symm
