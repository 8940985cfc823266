// Allocating symmetric memory: an ordinary Tensor whose bytes other ranks can be given access to.
//
// Allocation is local; ranks meet in rendezvous() only. A block is [header | signal pad | data]; the data begins on a page.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tutti/comm/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

// 64 ranks have 16 channels, 8 have 128, 2 have 512.
inline constexpr int64_t kDefaultSignalPadBytes = 32 << 10;

struct AllocationOptions {
  // Whom the memory is for: its backend makes it, its ranks must make their allocations for it in the same order (checked
  // at rendezvous), and rendezvous() without a group takes it.
  SymmGroup group = {};
  // From next_alloc_id(): the same id gives the same memory again, which is then never returned to the system. Of this
  // rank (RankContext). UsageError while a tensor with the id is alive, and when the number of bytes differs.
  std::optional<uint64_t> alloc_id = {};
  // Room for signals; a multiple of 64. 32 bytes for each channel and rank.
  int64_t signal_pad_bytes = kDefaultSignalPadBytes;
  // Without a group: the backend; "" is the default one.
  std::string backend = "";
};

// Shapes: any, 0-dim and zero elements included; the memory has product(sizes) x itemsize bytes, which strides do not
// enlarge. Not collective. The data starts at a multiple of 64 bytes and is zero in fresh memory. UsageError: strides
// that need more memory, overflow, unknown backend, rules of alloc_id. EnvironmentError: too little memory, which is
// noticed here and never later.
Tensor empty_strided_p2p(const Extents& sizes, const Extents& strides, DType dtype, Device device = kCpu,
                         const AllocationOptions& options = {});
// Contiguous.
Tensor empty_symm(const Extents& sizes, DType dtype, Device device = kCpu, const AllocationOptions& options = {});

// A number that this process has not given before; ids drawn at random collide when a generator is seeded again.
uint64_t next_alloc_id();

// Whether the bytes of `t` lie in symmetric memory; views into its middle count. Local; O(log of allocations).
bool is_symm_mem_tensor(const Tensor& t);

}  // namespace tutti::comm::symm
