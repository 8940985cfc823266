// SymmHandle: a tensor in symmetric memory together with the same tensor on all other ranks of a group.
//
// Ranks are group ranks. W is the group's size. Sizes count elements, and so do offsets, of the given dtype, unless
// stated in bytes. A handle keeps the memory of all ranks mapped; once a rank has freed its tensor, access to that rank
// through the handle is a UsageError. Any thread may use a handle; calls on one channel must be made one at a time.
//
// Waiting calls throw TimeoutError at their deadline and PeerError when a rank they wait for has died or left; both
// name the call, the ranks and the channel. The call can then be repeated: a barrier continues when it is called again
// on its channel, and a signal can still be received. Without `timeout` the timeout of the group applies. In a fork()ed
// child all of them are a UsageError.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tutti/runtime/fork_guard.h"
#include "tutti/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

class ChannelPool;
class Connection;

// Exclusive use of a channel of a handle while this object lives. Ranks that lease channels in the same order get the
// same ones.
class ChannelLease {
 public:
  ChannelLease(std::shared_ptr<ChannelPool> pool, int channel);
  ~ChannelLease();
  ChannelLease(ChannelLease&& other) noexcept = default;
  ChannelLease& operator=(ChannelLease&&) = delete;
  int channel() const { return channel_; }

 private:
  std::shared_ptr<ChannelPool> pool_;
  int channel_;
};

class SymmHandle {
 public:
  using Timeout = std::optional<std::chrono::milliseconds>;

  int rank() const { return rank_; }
  int world_size() const { return static_cast<int>(global_ranks_.size()); }
  // The device of this process from which views of any rank's memory can be accessed.
  Device device() const;
  // The name of the backend that allocated the memory.
  std::string backend() const;
  int64_t buffer_size() const;                // size of the allocation, not of the tensor, in bytes
  int64_t offset() const { return offset_; }  // bytes from the allocation's first data byte to the tensor
  int64_t signal_pad_size() const;            // in bytes, as given at allocation
  const std::vector<int>& rank_to_global_rank() const { return global_ranks_; }

  // The addresses of the first data byte of all W allocations; null when not accessible by load and store.
  std::vector<void*> buffer_ptrs() const;
  std::vector<void*> signal_pad_ptrs() const;
  bool world_within_direct_access() const;

  // The address of this tensor on rank r. Errors are those of get_remote_tensor().
  std::byte* data(int rank) const { return address("data", rank) + offset_; }
  // A contiguous view of rank r's allocation; `storage_offset` counts from its first data byte. UsageError for a rank
  // that does not exist, cannot be accessed or has freed its memory, for negative sizes or offsets, and beyond the end
  // of the allocation.
  Tensor get_buffer(int rank, const Extents& sizes, DType dtype, int64_t storage_offset = 0) const;
  // The same, starting where this tensor starts.
  Tensor get_remote_tensor(int peer, const Extents& sizes, DType dtype) const;
  // The same with strides: rank `peer`'s counterpart of the tensor that rendezvous() was called with.
  Tensor get_remote_strided(int peer, const Extents& sizes, const Extents& strides, DType dtype) const;
  // The signal pad of rank r as plain memory, for custom protocols; without `sizes` the whole pad. Channels used in
  // this way must not be used through this class.
  Tensor get_signal_pad(int rank, const std::optional<Extents>& sizes = {}, DType dtype = DType::i32,
                        int64_t storage_offset = 0) const;
  // [W, sizes...]: this tensor on all ranks, in one address range. The stride of dim 0 is a whole number of pages, so
  // the view is contiguous only if the allocation fills whole pages. Local; the first call maps the memory. UsageError
  // if the backend does not support such views.
  Tensor contiguous_view(const Extents& sizes, const Extents& strides, DType dtype) const;

  // Valid channels are 0 to channels() - 1; for any other, calls throw UsageError.
  int channels() const;
  // Leases a channel, from the highest downward, to avoid small numbers chosen by hand. UsageError when all are leased.
  ChannelLease lease_channel() const;
  // Returns when all ranks have called it; what any of them wrote before is then visible to all.
  void barrier(int channel = 0, Timeout timeout = {}) const;
  // A binary signal: a second put_signal waits until the first signal has been consumed by wait_signal.
  void put_signal(int peer, int channel = 0, Timeout timeout = {}) const;
  void wait_signal(int peer, int channel = 0, Timeout timeout = {}) const;
  // 64-bit counters, one per channel, receiver and sender, which start at 0 and only increase. Whoever reads a value
  // also sees what the sender wrote before adding. Never waits.
  void signal_add(int peer, uint64_t amount = 1, int channel = 0) const;
  uint64_t signal_value(int peer, int channel = 0) const;
  // Waits until the sum of what `peer` has added to this rank's counter is at least `value`, and returns the sum.
  uint64_t wait_until(int peer, uint64_t value, int channel = 0, Timeout timeout = {}) const;

  // put() copies src (contiguous) to this tensor on the peer, starting at element `offset`; after quiet() it is visible
  // to every rank that then synchronizes with this one. get() copies from there to dst and is complete when it returns.
  void put(const Tensor& src, int peer, int64_t offset = 0) const;
  void get(const Tensor& dst, int peer, int64_t offset = 0) const;
  // put(), then signal_add() on the channel.
  void put_with_signal(const Tensor& src, int peer, int64_t offset = 0, int channel = 0) const;
  // quiet(): all earlier puts of this thread are complete. fence(): they complete before any later one.
  void quiet() const;
  void fence() const;

  // multicast_ptr() is an address at which one write reaches all ranks, or null.
  bool has_multicast_support() const { return multicast_ptr() != nullptr; }
  void* multicast_ptr() const;
  // Writes src to all ranks, including this one: by multicast if available, else one after another.
  void multicast_write(const Tensor& src, int64_t offset = 0) const;

  const std::shared_ptr<Connection>& connection() const { return connection_; }

  SymmHandle(std::shared_ptr<Connection> connection, const SymmGroup& group, int64_t offset);
  ~SymmHandle();

 private:
  void check_rank(const char* call, int rank) const;
  // UsageError when the pad of `rank` serves a new tensor on the same memory.
  void check_pad(const char* call, int rank) const;
  std::byte* address(const char* call, int rank) const;
  Tensor view(const char* call, int rank, int64_t byte_offset, const Extents& sizes, const Extents& strides,
              DType dtype) const;
  void check_range(const char* call, int64_t byte_offset, int64_t nbytes, DType dtype) const;
  std::chrono::steady_clock::time_point deadline(Timeout timeout) const;
  SymmGroup group() const;
  std::string title() const;

  const ForkGuard process_;
  std::shared_ptr<Connection> connection_;
  std::weak_ptr<GroupState> group_;  // the group keeps its handles
  std::string group_name_;
  std::chrono::milliseconds timeout_;
  int rank_;
  std::vector<int> global_ranks_;
  int64_t offset_;
};

}  // namespace tutti::comm::symm
