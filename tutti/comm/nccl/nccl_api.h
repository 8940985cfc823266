// The part of NCCL's C interface that Tutti calls, declared here and found at run time in libnccl or librccl.
//
// Numbers and layouts are those of NCCL 2.27; later versions keep them. Older versions are refused, so there is no
// second way of doing anything.
#pragma once

#include <climits>
#include <cstddef>
#include <memory>
#include <string>

#include "tutti/core/dtype.h"
#include "tutti/core/reduce_op.h"

namespace tutti::comm {

inline constexpr int kRequiredNcclVersion = 22700;  // major * 10000 + minor * 100 + patch

struct NcclApi {
  enum Result : int { kSuccess = 0, kRemoteError = 6, kInProgress = 7 };
  enum Type : int { kI8, kU8, kI32, kU32, kI64, kU64, kF16, kF32, kF64, kBF16, kF8E4M3, kF8E5M2 };
  enum Op : int { kSum, kProduct, kMax, kMin, kAvg };
  using Comm = struct NcclComm*;      // opaque
  using Stream = struct CudaStream*;  // cudaStream_t or hipStream_t
  struct UniqueId {
    char bytes[128];
  };
  struct Config {
    size_t size = sizeof(Config);
    unsigned magic = 0xcafebeef;
    unsigned version = kRequiredNcclVersion;
    int blocking = 0;  // calls return at once; get_async_error tells when they are through
    int cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;  // INT_MIN: NCCL chooses
    const char* net_name = nullptr;
    int split_share = INT_MIN, traffic_class = INT_MIN;
    const char* comm_name = nullptr;
    int collnet_enable = INT_MIN, cta_policy = INT_MIN, shrink_share = INT_MIN, nvls_ctas = INT_MIN;
  };

  int (*get_version)(int*);
  int (*get_unique_id)(UniqueId*);
  int (*comm_init_rank_config)(Comm*, int size, UniqueId, int rank, Config*);
  int (*comm_finalize)(Comm);
  int (*comm_destroy)(Comm);
  int (*comm_abort)(Comm);
  int (*comm_get_async_error)(Comm, int* result);
  const char* (*get_error_string)(int);
  const char* (*get_last_error)(Comm);
  int (*red_op_create_premul_sum)(int* op, void* scalar, int type, int residence, Comm);
  int (*red_op_destroy)(int op, Comm);
  int (*all_reduce)(const void*, void*, size_t count, int type, int op, Comm, Stream);
  int (*broadcast)(const void*, void*, size_t count, int type, int root, Comm, Stream);
  int (*reduce)(const void*, void*, size_t count, int type, int op, int root, Comm, Stream);
  int (*all_gather)(const void*, void*, size_t count, int type, Comm, Stream);
  int (*reduce_scatter)(const void*, void*, size_t count, int type, int op, Comm, Stream);
  int (*send)(const void*, size_t count, int type, int peer, Comm, Stream);
  int (*recv)(void*, size_t count, int type, int peer, Comm, Stream);
  int (*group_start)();
  int (*group_end)();

  int version = 0;
  std::string path;

  // Opens TUTTI_NCCL_LIB, else libnccl.so.2, else librccl.so.1. EnvironmentError when that fails, a function is
  // missing, or the version is below 2.27 (both versions are named).
  static std::shared_ptr<const NcclApi> open();
};

// "2.27.3".
std::string nccl_version_text(int version);

// NCCL's type for arithmetic on `dtype`. boolean is u8. Not for i16, which NCCL lacks.
NcclApi::Type nccl_type(DType dtype);
// "" when NCCL reduces values of `dtype` so as Tutti means it, else why not. `architecture` is the GPU's compute
// capability, major * 10 + minor; 0: unknown or not NVIDIA's.
std::string why_nccl_cannot_reduce(ReduceKind kind, DType dtype, int architecture);
// NCCL's op for a kind other than premul_sum.
NcclApi::Op nccl_op(ReduceKind kind, DType dtype);

}  // namespace tutti::comm
