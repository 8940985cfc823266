// TraceEvent: the record of one instant or span. It is plain data, and what it points to lives as long as the process.
#pragma once

#include <time.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/runtime/trace/kernel_info.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti {

enum class TraceCategory : uint8_t {
  op,           // a call of an op
  kernel,       // a run of generated code
  extern_call,  // a call other than a generated kernel, such as a GEMM or sorting
  collective,   // a collective or message, from its start to its end
  annotation,   // a span named by the user
  memory,       // an instant: memory was allocated or freed
  mark,         // an instant named by the user
};

// The group of a collective, which is also a row of the timeline.
struct TraceGroup {
  std::string name, description;
  std::vector<int> ranks;  // world ranks in group-rank order
};

struct TraceEvent {
  TraceCategory category = TraceCategory::annotation;
  int32_t rank = 0;           // filled in by the recorder
  TraceContext context = {};  // filled in by the recorder, unless has_context
  bool has_context = false;
  const char* name = "";
  int64_t begin_ns = 0, end_ns = 0;  // from trace_now_ns(); equal for an instant
  const TraceKernel* kernel = nullptr;
  int64_t call = -1;              // number of the kernel's call, from 0
  double bytes = -1, flops = -1;  // work of this call; -1: the kernel's
  const TraceGroup* group = nullptr;
  const char* text = "";  // collective: name of the dtype; memory: category
  // collective: elements in, elements out, sequence number (0 for messages, which have none), peer or root (-1: none).
  // memory: address, bytes (negative: freed), total allocated, total reserved.
  int64_t values[4] = {};
};

// Nanoseconds of the monotonic clock.
inline int64_t trace_now_ns() noexcept {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// A copy of a name that lives as long as the process. After 65536 names: "(too many names)". Never throws.
const char* intern_trace_name(std::string_view name) noexcept;
// A copy of the group that lives as long as the process; equal groups give the same object. Throws only std::bad_alloc.
const TraceGroup& intern_trace_group(const TraceGroup& group);

}  // namespace tutti
