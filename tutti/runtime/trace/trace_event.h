// TraceEvent: what the recorder keeps of one moment or span. Plain data; what it points to lives as long as the process.
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
  kernel,       // generated code that runs
  extern_call,  // a call that is no generated kernel: a GEMM, sorting
  collective,   // a collective or message, from its start to its end
  annotation,   // a span that the user named
  memory,       // a moment: memory was taken or given back
  mark,         // a moment that the user named
};

// The group of a collective; also the row of a timeline that its calls stand in.
struct TraceGroup {
  std::string name, description;
  std::vector<int> ranks;  // of the world, in group-rank order
};

struct TraceEvent {
  TraceCategory category = TraceCategory::annotation;
  int32_t rank = 0;           // filled by the recorder
  TraceContext context = {};  // filled by the recorder, unless has_context
  bool has_context = false;
  const char* name = "";
  int64_t begin_ns = 0, end_ns = 0;  // trace_now_ns(); equal for a moment
  const TraceKernel* kernel = nullptr;
  int64_t call = -1;              // of the kernel, from 0
  double bytes = -1, flops = -1;  // of this call; -1: as the kernel says
  const TraceGroup* group = nullptr;
  const char* text = "";  // collective: name of the dtype; memory: category
  // collective: elements in, elements out, sequence number (0: a message, which has none), peer or root (-1: none).
  // memory: address, bytes (negative: given back), total allocated, total reserved.
  int64_t values[4] = {};
};

// Nanoseconds of the monotonic clock.
inline int64_t trace_now_ns() noexcept {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

// One copy per process of a name that is made at run time. Past 65536 names: "(too many names)". Never throws.
const char* intern_trace_name(std::string_view name) noexcept;
// The one TraceGroup of these facts. Throws std::bad_alloc only.
const TraceGroup& intern_trace_group(const TraceGroup& group);

}  // namespace tutti
