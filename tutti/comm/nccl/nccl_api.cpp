#include "tutti/comm/nccl/nccl_api.h"

#include "tutti/comm/nccl/open_library.h"
#include "tutti/core/error.h"

namespace tutti::comm {

std::shared_ptr<const NcclApi> NcclApi::open() {
  const OpenLibrary library("backend nccl", "TUTTI_NCCL_LIB", {"libnccl.so.2", "librccl.so.1"});
  auto api = std::make_shared<NcclApi>();
  api->path = library.path();
  library.load(api->get_version, {"ncclGetVersion"});
  const int result = api->get_version(&api->version);
  TUTTI_CHECK_ENV(result == kSuccess, "backend nccl: {} does not tell its version (result {})", api->path, result);
  // Before 2.9 versions were written major * 1000 + minor * 100 + patch, which is smaller in any case.
  TUTTI_CHECK_ENV(api->version >= kRequiredNcclVersion,
                  "backend nccl: {} is version {}; {} or newer is required. Install a newer NCCL, or name another file "
                  "in TUTTI_NCCL_LIB",
                  api->path, nccl_version_text(api->version), nccl_version_text(kRequiredNcclVersion));
  library.load(api->get_unique_id, {"ncclGetUniqueId"});
  library.load(api->comm_init_rank_config, {"ncclCommInitRankConfig"});
  library.load(api->comm_finalize, {"ncclCommFinalize"});
  library.load(api->comm_destroy, {"ncclCommDestroy"});
  library.load(api->comm_abort, {"ncclCommAbort"});
  library.load(api->comm_get_async_error, {"ncclCommGetAsyncError"});
  library.load(api->get_error_string, {"ncclGetErrorString"});
  library.load(api->get_last_error, {"ncclGetLastError"});
  library.load(api->red_op_create_premul_sum, {"ncclRedOpCreatePreMulSum"});
  library.load(api->red_op_destroy, {"ncclRedOpDestroy"});
  library.load(api->all_reduce, {"ncclAllReduce"});
  library.load(api->broadcast, {"ncclBroadcast"});
  library.load(api->reduce, {"ncclReduce"});
  library.load(api->all_gather, {"ncclAllGather"});
  library.load(api->reduce_scatter, {"ncclReduceScatter"});
  library.load(api->send, {"ncclSend"});
  library.load(api->recv, {"ncclRecv"});
  library.load(api->group_start, {"ncclGroupStart"});
  library.load(api->group_end, {"ncclGroupEnd"});
  return api;
}

std::string nccl_version_text(int version) {
  if (version < 10000) return fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

NcclApi::Type nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return NcclApi::kF64;
    case DType::f32:
      return NcclApi::kF32;
    case DType::bf16:
      return NcclApi::kBF16;
    case DType::f16:
      return NcclApi::kF16;
    case DType::f8e4m3fn:
      return NcclApi::kF8E4M3;
    case DType::f8e5m2:
      return NcclApi::kF8E5M2;
    case DType::i64:
      return NcclApi::kI64;
    case DType::i32:
      return NcclApi::kI32;
    case DType::i8:
      return NcclApi::kI8;
    case DType::u8:
    case DType::boolean:
      return NcclApi::kU8;
    case DType::i16:
      break;
  }
  throw InternalError(fmt::format("nccl_type: NCCL has no {}", name_of(dtype)));
}

std::string why_nccl_cannot_reduce(ReduceKind kind, DType dtype, int architecture) {
  if (std::string why = why_not_reducible(kind, dtype); !why.empty()) return why;
  if (kind == ReduceKind::band || kind == ReduceKind::bor || kind == ReduceKind::bxor) {
    // On booleans "or" is the largest and "and" the smallest.
    if (dtype != DType::boolean || kind == ReduceKind::bxor) return fmt::format("NCCL has no {}", name_of(kind));
  }
  if (dtype == DType::i16) return "NCCL has no arithmetic on i16";
  if (is_fp8(dtype) && architecture != 0 && architecture < 90) {
    return fmt::format("NCCL adds {} on GPUs of compute capability 9.0 and newer; this one has {}.{}", name_of(dtype),
                       architecture / 10, architecture % 10);
  }
  return "";
}

NcclApi::Op nccl_op(ReduceKind kind, DType dtype) {
  const bool boolean = dtype == DType::boolean;
  switch (kind) {
    case ReduceKind::sum:
      return boolean ? NcclApi::kMax : NcclApi::kSum;
    case ReduceKind::avg:
      return NcclApi::kAvg;
    case ReduceKind::product:
      return boolean ? NcclApi::kMin : NcclApi::kProduct;
    case ReduceKind::min:
    case ReduceKind::band:
      return NcclApi::kMin;
    case ReduceKind::max:
    case ReduceKind::bor:
      return NcclApi::kMax;
    case ReduceKind::bxor:
    case ReduceKind::premul_sum:
      break;
  }
  throw InternalError(fmt::format("nccl_op: {} is none of NCCL's", name_of(kind)));
}

}  // namespace tutti::comm
