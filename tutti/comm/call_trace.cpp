#include "tutti/comm/call_trace.h"

#include <exception>

#include "tutti/comm/collective_def.h"
#include "tutti/core/hash.h"

namespace tutti::comm {
namespace {

struct Elements {
  int64_t in, out;
};

// A record describes the smaller side: what one rank gives or gets.
Elements elements_of(const CollectiveDef& def, int64_t n, int64_t ranks) {
  switch (def.flow) {
    case Flow::gathers:
      return {n, n * ranks};
    case Flow::scatters:
      return {n * ranks, n};
    case Flow::sends:
      return {n, 0};
    case Flow::receives:
      return {0, n};
    case Flow::keeps:
      break;
  }
  return {n, n};
}

}  // namespace

const TraceKernel& CallTraceGroup::kernel_of(const CallRecord& record) {
  const TraceKernel*& kernel = kernels_[{record.kind, record.dtype}];
  if (kernel == nullptr) {
    const std::string name(name_of(record.kind));
    const std::string what = fmt::format("{} {} {} {}", name, name_of(record.dtype), group_.name, transport_);
    kernel = &intern_kernel({.kernel_id = fmt::format("{}_{:012x}", name, hash64(what) >> 16),
                             .ops = {{.name = name}},
                             .choice = transport_});
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
    const CollectiveDef& def = definition(record.kind);
    const Elements elements = elements_of(def, record.numel(), ranks);
    const char* name = def.name;
    // Operations on elements that this rank's part of the result takes.
    const int64_t operations = def.reduces ? record.numel() * (ranks - 1) : 0;
    TraceRecorder::record({.category = TraceCategory::collective,
                           .context = context_,
                           .has_context = true,
                           .name = failed ? intern_trace_name(fmt::format("{} (failed)", name)) : name,
                           .begin_ns = begin_ns_,
                           .end_ns = end_ns,
                           .kernel = &group.kernel_of(record),
                           .bytes = static_cast<double>((elements.in + elements.out) * itemsize(record.dtype)),
                           .flops = static_cast<double>(operations),
                           .group = group.interned_,
                           .text = name_of(record.dtype).data(),
                           .values = {elements.in, elements.out, def.is_message ? 0 : record.sequence, record.root}});
  } catch (const std::exception&) {
    // Memory is short: the call goes on without its event.
  }
}

}  // namespace tutti::comm
