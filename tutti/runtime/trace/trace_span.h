// TraceSpan: an event from here to the end of the scope, however the scope is left.
//
//   const TraceSpan span(TraceCategory::annotation, "load batch");
//
// While no session runs a span costs one relaxed load. A span that was open when a session started is not in its trace.
#pragma once

#include <new>
#include <type_traits>

#include "tutti/runtime/trace/trace_recorder.h"

namespace tutti {

static_assert(std::is_trivially_destructible_v<TraceEvent>);

// What is known of a call before it runs; see TraceEvent.
struct TraceFacts {
  double bytes = -1, flops = -1;
};

// Belongs to the thread that made it.
class TraceSpan {
 public:
  // `name` is a literal, or kept by intern_trace_name().
  TraceSpan(TraceCategory category, const char* name) noexcept : open_(false) {
    if (!TraceRecorder::is_on()) [[likely]] return;
    open(category, name);
  }
  // A call of `kernel`.
  TraceSpan(TraceCategory category, const TraceKernel& kernel, const TraceFacts& facts = {}) noexcept : open_(false) {
    if (!TraceRecorder::is_on()) [[likely]] return;
    open(category, kernel.info.kernel_id.c_str());
    event_.kernel = &kernel;
    event_.bytes = facts.bytes;
    event_.flops = facts.flops;
  }
  ~TraceSpan() {
    if (!open_) [[likely]] return;
    event_.end_ns = trace_now_ns();
    TraceRecorder::record(event_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  void open(TraceCategory category, const char* name) noexcept {
    new (&event_) TraceEvent{.category = category, .context = TraceContext::current(), .has_context = true, .name = name, .begin_ns = trace_now_ns()};
    open_ = true;
  }
  bool open_;
  union {
    TraceEvent event_;  // while open_; a span that nobody looks at must not fill it
  };
};

// A moment on this thread's row.
inline void trace_mark(const char* name) noexcept {
  if (!TraceRecorder::is_on()) [[likely]] return;
  const int64_t now = trace_now_ns();
  TraceRecorder::record({.category = TraceCategory::mark, .name = name, .begin_ns = now, .end_ns = now});
}

}  // namespace tutti
