#include "tutti/comm/nccl/nccl_backend.h"

#include "tutti/comm/call_checks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr int kHostScalar = 1;  // ncclScalarHostImmediate
constexpr int64_t kBarrierBytes = 64;

bool reduces(CollectiveKind kind) { return name_of(kind).find("reduce") != std::string_view::npos; }

// Sums in another order have other bits; the largest, the smallest and integer sums do not depend on the order.
bool depends_on_order(ReduceKind kind, DType dtype) {
  return is_floating(dtype) && kind != ReduceKind::min && kind != ReduceKind::max;
}

}  // namespace

NcclBackend::NcclBackend(NcclOptions options) : comm_(std::make_shared<NcclCommunicator>(std::move(options))) {
  const GpuApi& gpu = comm_->gpu();
  const GpuApi::OnDevice on_device(gpu, this->options().device.index);
  architecture_ = gpu.architecture(this->options().device.index);
  gpu.check(gpu.malloc(&barrier_word_, static_cast<size_t>(kBarrierBytes)), "Malloc");
}

NcclBackend::~NcclBackend() { comm_->gpu().free(barrier_word_); }

std::string NcclBackend::why_not_reducible_here(ReduceKind kind, DType dtype) const {
  if (std::string why = why_nccl_cannot_reduce(kind, dtype, architecture_); !why.empty()) return why;
  if (options().strict_numerics && depends_on_order(kind, dtype)) {
    return fmt::format("NCCL chooses the order of additions by size and topology, so that {} of {} is not what strict numerics asks "
                       "for; gather the values and add them in rank order, or turn strict_numerics off", name_of(kind), name_of(dtype));
  }
  return "";
}

Answer NcclBackend::can(const CallQuery& query) const {
  const auto no = [](std::string why) { return Answer{false, std::move(why)}; };
  if (query.device != options().device) {
    return no(fmt::format("the group works on {}, not on {}", to_string(options().device), to_string(query.device)));
  }
  switch (query.kind) {
    case CollectiveKind::monitored_barrier:
    case CollectiveKind::gather_bytes: case CollectiveKind::broadcast_bytes:
    case CollectiveKind::all_gather_bytes: case CollectiveKind::scatter_bytes:
      return no(fmt::format("NCCL moves the memory of a GPU; {} is for a backend of the host", name_of(query.kind)));
    default:
      break;
  }
  if (!reduces(query.kind)) return {};
  std::string why = why_not_reducible_here(query.reduce, query.dtype);
  return why.empty() ? Answer{} : no(std::move(why));
}

void NcclBackend::check_read(const char* op, const char* role, const Tensor& t) const {
  checks::tensor(op, role, t, options().device);
  TUTTI_CHECK(t.is_contiguous(), "{}: the {} tensor {} has strides {}; NCCL moves dense tensors: give contiguous() of it", op, role,
              describe(t), to_string(t.strides()));
}

void NcclBackend::check_write(const char* op, const char* role, const Tensor& t) const {
  checks::writable(op, role, t, options().device);
  check_read(op, role, t);
}

void NcclBackend::check_reducible(const char* op, const ReduceOp& reduce, DType dtype) const {
  const std::string why = why_not_reducible_here(reduce.kind(), dtype);
  TUTTI_CHECK(why.empty(), "{}: {}", op, why);
}

NcclReduction::~NcclReduction() {
  // NCCL keeps an op alive for the calls that use it.
  for (const auto& [dtype, op] : made_) on_.owner.nccl().red_op_destroy(op, on_.comm);
}

int NcclReduction::op(DType dtype) {
  if (reduce_.kind() != ReduceKind::premul_sum) return nccl_op(reduce_.kind(), dtype);
  for (const auto& [made_for, op] : made_) {
    if (made_for == dtype) return op;
  }
  alignas(8) char factor[8] = {};
  store_from_double(factor, dtype, reduce_.factor());
  int op = 0;
  on_.check(on_.owner.nccl().red_op_create_premul_sum(&op, factor, nccl_type(dtype), kHostScalar, on_.comm), "ncclRedOpCreatePreMulSum");
  made_.push_back({dtype, op});
  return op;
}

Work NcclBackend::barrier(const CallOptions& call) {
  const NcclApi& nccl = comm_->nccl();
  // No call's result: on the device only its end matters.
  const Work work = comm_->submit({.kind = CollectiveKind::barrier}, [&](const NcclCommunicator::Launch& on) {
    on.check(nccl.all_reduce(barrier_word_, barrier_word_, 1, NcclApi::kI32, NcclApi::kMax, on.comm, on.stream), "ncclAllReduce");
  }, {}, 0, call);
  return work;
}

}  // namespace tutti::comm
