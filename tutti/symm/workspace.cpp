#include "tutti/symm/workspace.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/group_state.h"
#include "tutti/symm/memory_file.h"
#include "tutti/symm/rendezvous.h"

namespace tutti::comm::symm {

class WorkspacePool {
 public:
  struct Piece {
    Tensor memory;
    std::shared_ptr<SymmHandle> handle;
    std::map<int64_t, int64_t> leased;  // begin -> end
  };
  struct Found {
    std::shared_ptr<SymmHandle> handle;
    Tensor memory;
    int64_t begin = 0;
  };

  // The first gap that is large enough.
  std::optional<Found> lease(int64_t nbytes) {
    const std::lock_guard lock(mutex_);
    for (Piece& piece : pieces_) {
      const int64_t begin = find_gap(piece, nbytes);
      if (begin < 0) continue;
      piece.leased[begin] = begin + nbytes;
      return Found{.handle = piece.handle, .memory = piece.memory, .begin = begin};
    }
    return std::nullopt;
  }

  // Memory for a further piece, in which no rank has met yet. Made for no group: it is not among the allocations whose
  // order the ranks compare, since it may go unused.
  Tensor allocate(const SymmGroup& group, int64_t nbytes) {
    const std::lock_guard lock(mutex_);
    int64_t size = std::max<int64_t>(nbytes, 256 << 10);
    if (largest_ > 0) size = std::max(size, std::min(2 * largest_, largest_ + (int64_t{256} << 20)));
    return empty_symm({round_up(size, kPageBytes)}, DType::u8, Device{find_backend(group.backend()).traits().device, 0},
                      {.backend = group.backend()});
  }

  // Leases the front of it. The older pieces are left to those who have leases there.
  Found add(const SymmGroup& group, const Tensor& memory, int64_t nbytes) {
    const std::lock_guard lock(mutex_);
    std::erase_if(pieces_, [](const Piece& piece) { return piece.leased.empty(); });
    Piece piece{.memory = memory, .handle = rendezvous_for("more workspace", memory, group), .leased = {{0, nbytes}}};
    largest_ = std::max(largest_, memory.numel());
    pieces_.push_back(piece);
    return {.handle = piece.handle, .memory = piece.memory, .begin = 0};
  }

  void release(const SymmHandle& handle, int64_t begin) {
    const std::lock_guard lock(mutex_);
    for (Piece& piece : pieces_) {
      if (piece.handle.get() == &handle) piece.leased.erase(begin);
    }
  }

 private:
  static int64_t find_gap(const Piece& piece, int64_t nbytes) {
    int64_t begin = 0;
    for (const auto& [other, end] : piece.leased) {
      if (other - begin >= nbytes) return begin;
      begin = end;
    }
    return piece.memory.numel() - begin >= nbytes ? begin : -1;
  }

  std::mutex mutex_;
  std::vector<Piece> pieces_;
  int64_t largest_ = 0;
};

WorkspaceLease::WorkspaceLease(std::shared_ptr<WorkspacePool> pool, std::shared_ptr<SymmHandle> handle, Tensor all,
                               int64_t begin, int64_t end)
    : pool_(std::move(pool)), handle_(std::move(handle)), all_(std::move(all)), begin_(begin), end_(end) {}

WorkspaceLease::~WorkspaceLease() {
  if (pool_) pool_->release(*handle_, begin_);
}

Tensor WorkspaceLease::view(int rank, const Extents& sizes, DType dtype, int64_t byte_offset) const {
  const int64_t size = itemsize(dtype);
  TUTTI_CHECK(byte_offset >= 0 && byte_offset % size == 0, "workspace: byte {} is no place for {}", byte_offset,
              name_of(dtype));
  TUTTI_CHECK(byte_offset <= nbytes() && numel_of(sizes) <= (nbytes() - byte_offset) / size,
              "workspace: {} of {} at byte {} of a lease of {} bytes", sizes, name_of(dtype), byte_offset, nbytes());
  return handle_->get_buffer(rank, sizes, dtype, (begin_ + byte_offset) / size);
}

std::byte* WorkspaceLease::data(int rank) const { return handle_->data(rank) + begin_; }

WorkspaceRequest::WorkspaceRequest(const SymmGroup& group, int64_t min_bytes) : group_(group) {
  TUTTI_CHECK(min_bytes >= 0 && min_bytes < (int64_t{1} << 60), "get_symm_mem_workspace: {} bytes", min_bytes);
  nbytes_ = round_up(std::max<int64_t>(min_bytes, 1), 64);
  {
    const std::lock_guard lock(group.state()->mutex);
    if (!group.state()->workspace) group.state()->workspace = std::make_shared<WorkspacePool>();
    pool_ = group.state()->workspace;
  }
  if (auto found = pool_->lease(nbytes_))
    lease_.emplace(pool_, std::move(found->handle), std::move(found->memory), found->begin, found->begin + nbytes_);
  else more_ = pool_->allocate(group, nbytes_);
}

WorkspaceLease WorkspaceRequest::take() {
  if (lease_) return *std::move(lease_);
  WorkspacePool::Found found = pool_->add(group_, more_, nbytes_);
  return WorkspaceLease(pool_, std::move(found.handle), std::move(found.memory), found.begin, found.begin + nbytes_);
}

WorkspaceLease get_symm_mem_workspace(const SymmGroup& group, int64_t min_bytes) {
  return WorkspaceRequest(group, min_bytes).take();
}

}  // namespace tutti::comm::symm
