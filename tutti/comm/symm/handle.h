// SymmHandle: a tensor in symmetric memory together with the same tensor on all other ranks of a group.
//
// Ranks are group ranks. W is the group's size. Sizes are in elements, offsets in elements of the dtype given unless
// they say bytes. A handle keeps the memory of all ranks mapped; once a rank has freed its tensor, access to that rank
// through the handle is a UsageError. Any thread may call a handle; calls on one channel come one at a time.
//
// Waiting calls throw TimeoutError at their deadline and PeerError when a rank they wait for has died or left; both name
// the call, the ranks and the channel, and leave the process as it was: a barrier goes on when it is called again on its
// channel, a signal that did not come is still awaited. `timeout` absent means the group's.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tutti/comm/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

class ChannelPool;
class Connection;

// A channel that nobody else on the handle uses while this lives. Ranks get the same ones when they ask in the same order.
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
  // Where views of any rank's memory are reachable: a device of this process.
  Device device() const;
  // The name of the backend that made the memory.
  std::string backend() const;
  int64_t buffer_size() const;  // bytes of this allocation, not of the tensor
  int64_t offset() const { return offset_; }  // bytes from the allocation's first data byte to the tensor
  int64_t signal_pad_size() const;            // bytes, as this memory was made
  const std::vector<int>& rank_to_global_rank() const { return global_ranks_; }

  // W addresses of the allocations' first data byte; null: not reachable by load and store.
  std::vector<void*> buffer_ptrs() const;
  std::vector<void*> signal_pad_ptrs() const;
  bool world_within_direct_access() const;

  // Where this tensor of rank r begins. UsageError as of get_remote_tensor().
  std::byte* data(int rank) const { return address("data", rank) + offset_; }
  // A contiguous view of rank r's allocation. Counts `storage_offset` from the first byte of the allocation. UsageError:
  // no such rank, not reachable, freed; negative sizes or offsets; an end beyond the allocation.
  Tensor get_buffer(int rank, const Extents& sizes, DType dtype, int64_t storage_offset = 0) const;
  // The same, from where this tensor begins.
  Tensor get_remote_tensor(int peer, const Extents& sizes, DType dtype) const;
  // With strides: rank `peer`'s copy of a tensor such as rendezvous() was called with.
  Tensor get_remote_strided(int peer, const Extents& sizes, const Extents& strides, DType dtype) const;
  // The signals of rank r as plain memory, for protocols of one's own; without sizes all of it. Channels used there must
  // not be used through this class.
  Tensor get_signal_pad(int rank, const std::optional<Extents>& sizes = {}, DType dtype = DType::i32,
                        int64_t storage_offset = 0) const;
  // [W, sizes...]: this tensor on all ranks, in one range of addresses. The stride of dim 0 is whole pages, so the view
  // is not contiguous unless the allocation is. Local; the first call maps. UsageError where the backend has no views.
  Tensor contiguous_view(const Extents& sizes, const Extents& strides, DType dtype) const;

  // Channels are 0 to channels() - 1; UsageError names the largest legal one.
  int channels() const;
  // From the highest downwards, so that they do not meet small numbers chosen by hand. UsageError when all are leased.
  ChannelLease lease_channel() const;
  // Returns when all ranks have come to it; what any of them wrote before is then visible to all.
  void barrier(int channel = 0, Timeout timeout = {}) const;
  // A signal that is there or not: a second one waits until the first was taken.
  void put_signal(int peer, int channel = 0, Timeout timeout = {}) const;
  void wait_signal(int peer, int channel = 0, Timeout timeout = {}) const;
  // Counters of 64 bits, one per channel, receiver and sender, that only grow from 0. What the sender wrote before is
  // visible to who sees the sum. Never waits.
  void signal_add(int peer, uint64_t amount = 1, int channel = 0) const;
  uint64_t signal_value(int peer, int channel = 0) const;
  // Until the sum of what `peer` added here is at least `value`; returns the sum.
  uint64_t wait_until(int peer, uint64_t value, int channel = 0, Timeout timeout = {}) const;

  // Copies src (contiguous) to the peer, `offset` elements behind where this tensor begins; complete for all who
  // synchronize with this rank after quiet(). get() is complete when it returns.
  void put(const Tensor& src, int peer, int64_t offset = 0) const;
  void get(const Tensor& dst, int peer, int64_t offset = 0) const;
  // put, then signal_add on the channel.
  void put_with_signal(const Tensor& src, int peer, int64_t offset = 0, int channel = 0) const;
  // Every earlier put of this thread is complete / is complete before every later one.
  void quiet() const;
  void fence() const;

  // Address under which one write reaches all ranks, or null.
  bool has_multicast_support() const { return multicast_ptr() != nullptr; }
  void* multicast_ptr() const;
  // Writes src to all ranks, this one too: by multicast where there is, else one after the other.
  void multicast_write(const Tensor& src, int64_t offset = 0) const;

  const std::shared_ptr<Connection>& connection() const { return connection_; }

  SymmHandle(std::shared_ptr<Connection> connection, const SymmGroup& group, int64_t offset);
  ~SymmHandle();

 private:
  void check_rank(const char* call, int rank) const;
  // UsageError when the pad of `rank` serves a new tensor on the same memory.
  void check_pad(const char* call, int rank) const;
  std::byte* address(const char* call, int rank) const;
  Tensor view(const char* call, int rank, int64_t byte_offset, const Extents& sizes, const Extents& strides, DType dtype) const;
  void check_range(const char* call, int64_t byte_offset, int64_t nbytes, DType dtype) const;
  std::chrono::steady_clock::time_point deadline(Timeout timeout) const;
  SymmGroup group() const;
  std::string title() const;

  std::shared_ptr<Connection> connection_;
  std::weak_ptr<GroupState> group_;  // the group keeps its handles
  std::string group_name_;
  std::chrono::milliseconds timeout_;
  int rank_;
  std::vector<int> global_ranks_;
  int64_t offset_;
};

}  // namespace tutti::comm::symm
