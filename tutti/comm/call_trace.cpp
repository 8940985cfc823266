#include "tutti/comm/call_trace.h"

#include <exception>

#include "tutti/core/hash.h"

namespace tutti::comm {
namespace {

struct Elements {
  int64_t in, out;
};

// A record describes the smaller side: what one rank gives or gets.
Elements elements_of(const CallRecord& record, int64_t ranks) {
  const int64_t n = record.numel();
  switch (record.kind) {
    case CollectiveKind::all_gather: case CollectiveKind::all_gather_v: case CollectiveKind::all_gather_coalesced: case CollectiveKind::all_gather_single:
    case CollectiveKind::all_gather_single_coalesced: case CollectiveKind::gather: return {n, n * ranks};
    case CollectiveKind::scatter: case CollectiveKind::reduce_scatter: case CollectiveKind::reduce_scatter_v:
    case CollectiveKind::reduce_scatter_single: case CollectiveKind::reduce_scatter_single_coalesced: return {n * ranks, n};
    case CollectiveKind::send: return {n, 0};
    case CollectiveKind::recv: return {0, n};
    default: return {n, n};
  }
}

// Operations on elements that this rank's part of the result takes.
int64_t operations_of(const CallRecord& record, int64_t ranks) {
  switch (record.kind) {
    case CollectiveKind::all_reduce: case CollectiveKind::all_reduce_coalesced: case CollectiveKind::reduce:
    case CollectiveKind::reduce_scatter: case CollectiveKind::reduce_scatter_v: case CollectiveKind::reduce_scatter_single:
    case CollectiveKind::reduce_scatter_single_coalesced: return record.numel() * (ranks - 1);
    default: return 0;
  }
}

bool is_message(const CallRecord& record) { return record.kind == CollectiveKind::send || record.kind == CollectiveKind::recv; }

}  // namespace

const TraceKernel& CallTraceGroup::kernel_of(const CallRecord& record) {
  const TraceKernel*& kernel = kernels_[{record.kind, record.dtype}];
  if (kernel == nullptr) {
    const std::string name(name_of(record.kind));
    const std::string what = fmt::format("{} {} {} {}", name, name_of(record.dtype), group_.name, transport_);
    kernel = &intern_kernel({.kernel_id = fmt::format("{}_{:012x}", name, hash64(what) >> 16), .ops = {{.name = name}}, .choice = transport_});
  }
  return *kernel;
}

void CallTrace::accept(bool starts) noexcept {
  is_traced_ = true;
  context_ = TraceContext::current();
  if (context_.origin == 0) context_.origin = trace_thread_id();
  if (starts) begin_ns_ = trace_now_ns();
}

void CallTrace::emit(CallTraceGroup& group, const CallRecord& record, bool failed) noexcept {
  if (begin_ns_ == 0) return;  // it failed before it started
  const int64_t end_ns = trace_now_ns();
  try {
    if (group.interned_ == nullptr) group.interned_ = &intern_trace_group(group.group_);
    const int64_t ranks = static_cast<int64_t>(group.group_.ranks.size());
    const Elements elements = elements_of(record, ranks);
    const char* name = name_of(record.kind).data();
    TraceRecorder::record({.category = TraceCategory::collective, .context = context_, .has_context = true,
                           .name = failed ? intern_trace_name(fmt::format("{} (failed)", name)) : name, .begin_ns = begin_ns_, .end_ns = end_ns,
                           .kernel = &group.kernel_of(record), .bytes = static_cast<double>((elements.in + elements.out) * itemsize(record.dtype)),
                           .flops = static_cast<double>(operations_of(record, ranks)), .group = group.interned_, .text = name_of(record.dtype).data(),
                           .values = {elements.in, elements.out, is_message(record) ? 0 : record.sequence, record.root}});
  } catch (const std::exception&) {
    // Memory is short: the call goes on without its event.
  }
}

}  // namespace tutti::comm
