// The internal record of an allocation of symmetric memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tutti/runtime/fork_guard.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/backend.h"

namespace tutti::comm::symm {

// At the beginning of a block that the host can reach.
struct alignas(128) BlockHeader {
  uint64_t magic;
  int64_t pad_offset;
  int64_t data_offset;
  int64_t data_bytes;
  uint64_t ordinal;
  std::atomic<uint64_t> generation;  // of the tensor on it, from 1; 0 while there is none
};
inline constexpr uint64_t kBlockMagic = 0x31006d6d79737474;

// Any thread. Lives as long as the tensor, a handle or, with an alloc_id, the rank context.
class Allocation {
 public:
  // Takes fresh memory.
  Allocation(Backend& backend, Device device, int64_t data_bytes, int64_t signal_pad_bytes);

  Backend& backend;  // that made it: what options say later changes nothing
  const Device device;
  const uint64_t number;  // in this process; never given twice
  const int64_t data_bytes;
  const int64_t pad_slot_bytes;
  const std::shared_ptr<Block> block;
  const int64_t data_offset;  // in the block

  std::byte* data() const { return block->base + data_offset; }
  BlockHeader& header() const { return *reinterpret_cast<BlockHeader*>(block->base); }
  std::byte* pad() const;

  // A tensor comes to live on the memory / the last one on it goes.
  void begin_generation(const SymmGroup& group);
  void end_generation();
  uint64_t generation() const { return live_.load(std::memory_order_acquire); }  // 0: no tensor

  // The pad inside the block serves one group; another one gets a pad of its own.
  bool claim_pad(const GroupState& group);
  // `group` keeps handles of this allocation, to be dropped with the tensor.
  void remember(const std::shared_ptr<GroupState>& group);

  std::weak_ptr<GroupState> group;  // given at allocation
  uint64_t ordinal = 0;             // among the allocations for `group`; 0 without one

 private:
  const ForkGuard process_;
  std::atomic<uint64_t> live_{0};
  std::mutex mutex_;
  uint64_t generations_ = 0;
  const GroupState* pad_owner_ = nullptr;
  std::vector<std::weak_ptr<GroupState>> users_;
};

// The allocation in which the bytes of `t` lie, or null.
std::shared_ptr<Allocation> find_allocation(const Tensor& t);

}  // namespace tutti::comm::symm
