// Allocation of symmetric memory: ordinary Tensors whose memory other ranks can be given access to.
//
// Allocation is local; ranks communicate only in rendezvous(). A block is [header | signal pad | data]; the data is
// page-aligned.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tutti/symm/group.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

// Gives 16 channels to 64 ranks, 128 to 8 ranks, 512 to 2 ranks.
inline constexpr int64_t kDefaultSignalPadBytes = 32 << 10;

struct AllocationOptions {
  // The group the memory is for: its backend allocates it, its ranks must make their allocations for it in the same
  // order (checked at rendezvous), and rendezvous() without a group argument uses it.
  SymmGroup group = {};
  // An id from next_alloc_id(). The same id gives the same memory again within a rank (RankContext); such memory is
  // never returned to the system. UsageError while a tensor with this id is alive, or when the number of bytes differs.
  std::optional<uint64_t> alloc_id = {};
  // The size of the signal pad in bytes, a multiple of 64: 32 bytes per channel and rank.
  int64_t signal_pad_bytes = kDefaultSignalPadBytes;
  // The backend when there is no group; "": the default one.
  std::string backend = "";
};

// A tensor in symmetric memory. Not collective. Shapes: any, including 0-dim and zero elements; the memory has
// product(sizes) x itemsize bytes, whatever the strides. The data starts at a multiple of 64 bytes and is zero in new
// memory. UsageError for strides that need more memory, overflow, an unknown backend, or a violation of the rules of
// alloc_id. EnvironmentError when there is too little memory, which is detected here and never later.
Tensor empty_strided_p2p(const Extents& sizes, const Extents& strides, DType dtype, Device device = kCpu,
                         const AllocationOptions& options = {});
// The same with contiguous strides.
Tensor empty_symm(const Extents& sizes, DType dtype, Device device = kCpu, const AllocationOptions& options = {});

// An id that is unique in this process. (Random ids would collide when a generator is seeded again.)
uint64_t next_alloc_id();

// Whether the bytes of `t` are in symmetric memory, also as a view of a part of it. Local; takes O(log n) time for n
// allocations.
bool is_symm_mem_tensor(const Tensor& t);

}  // namespace tutti::comm::symm
