#include "tutti/comm/nccl/nccl_backend.h"

#include "tutti/comm/call_checks.h"
#include "tutti/comm/nccl/nccl_calls.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr int64_t kBarrierBytes = 64;

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
    return fmt::format(
        "NCCL chooses the order of additions by size and topology, so that {} of {} is not what strict numerics asks "
        "for; gather the values and add them in rank order, or turn strict_numerics off",
        name_of(kind), name_of(dtype));
  }
  return "";
}

Answer NcclBackend::can(const CallQuery& query) const {
  const auto no = [](std::string why) { return Answer{false, std::move(why)}; };
  if (query.device != options().device) {
    return no(fmt::format("the group works on {}, not on {}", to_string(options().device), to_string(query.device)));
  }
  const CollectiveDef& def = definition(query.kind);
  if (std::string why = why_not_on_gpus(def); !why.empty()) return no(std::move(why));
  if (!def.reduces) return {};
  std::string why = why_not_reducible_here(query.reduce, query.dtype);
  return why.empty() ? Answer{} : no(std::move(why));
}

void NcclBackend::check_read(const char* op, const char* role, const Tensor& t) const {
  checks::tensor(op, role, t, options().device);
  TUTTI_CHECK(t.is_contiguous(),
              "{}: the {} tensor {} has strides {}; NCCL moves dense tensors: give contiguous() of it", op, role,
              describe(t), to_string(t.strides()));
}

void NcclBackend::check_write(const char* op, const char* role, const Tensor& t) const {
  checks::writable(op, role, t, options().device);
  check_read(op, role, t);
}

void NcclBackend::check_call(const CollectiveDef& def, const CollectiveCall& call) const {
  checks::arguments(def, call, {rank(), size(), options().device});
  const char* role = reads_outputs(def, call, rank()) ? "input" : "output";
  for (const Tensor& t : call.inputs) check_read(def.name, "input", t);
  for (const Tensor& t : results_of(call)) {
    check_read(def.name, role, t);
    const std::string why = def.reduces ? why_not_reducible_here(call.reduce.kind(), t.dtype()) : "";
    TUTTI_CHECK(why.empty(), "{}: {}", def.name, why);
  }
}

Work NcclBackend::run(const CollectiveCall& call) {
  const CollectiveDef& def = definition_of(call);
  if (const std::string why = why_not_on_gpus(def); !why.empty()) throw UsageError(why);
  check_call(def, call);
  const Seat seat{rank(), size(), options().device};
  CallRecord record = record_of(def, call, seat);
  if (def.each != nullptr) record.tensors = static_cast<int32_t>(parts_of(def, call));
  std::vector<Tensor> tensors(call.inputs.begin(), call.inputs.end());
  for (const Tensor& t : results_of(call)) tensors.push_back(t);
  const size_t first_output = writes_outputs(def, call, rank()) ? call.inputs.size() : tensors.size();
  return comm_->submit(
      record,
      [&](const NcclCommunicator::Launch& on) {
        NcclReduction reduction(on, call.reduce);
        if (def.each == nullptr) return launch_nccl(def, {call, seat}, on, reduction, barrier_word_);
        for (size_t i = 0; i < parts_of(def, call); ++i) {
          const CollectiveCall part = part_of(def, call, i);
          launch_nccl(*def.each, {part, seat}, on, reduction, barrier_word_);
        }
      },
      std::move(tensors), first_output, call.options);
}

}  // namespace tutti::comm
