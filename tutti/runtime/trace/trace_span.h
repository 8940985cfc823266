// TraceSpan: an event that lasts from its construction to the end of the scope, however the scope is left.
//
//   const TraceSpan span(TraceCategory::annotation, "load batch");
//
// While no session runs, a span costs one relaxed load. A span that was already open when a session started is not in
// its trace.
#pragma once

#include <new>
#include <type_traits>

#include "tutti/runtime/trace/trace_recorder.h"

namespace tutti {

static_assert(std::is_trivially_destructible_v<TraceEvent>);

// The work of a call, if known before it runs; see TraceEvent.
struct TraceFacts {
  double bytes = -1, flops = -1;
};

// Used by the thread that created it.
class TraceSpan {
 public:
  // `name` is a literal or comes from intern_trace_name().
  TraceSpan(TraceCategory category, const char* name) noexcept : open_(false) {
    if (!TraceRecorder::is_on()) [[likely]]
      return;
    open(category, name);
  }
  // A call of `kernel`.
  TraceSpan(TraceCategory category, const TraceKernel& kernel, const TraceFacts& facts = {}) noexcept : open_(false) {
    if (!TraceRecorder::is_on()) [[likely]]
      return;
    open(category, kernel.info.kernel_id.c_str());
    event_.kernel = &kernel;
    event_.bytes = facts.bytes;
    event_.flops = facts.flops;
  }
  ~TraceSpan() {
    if (!open_) [[likely]]
      return;
    event_.end_ns = trace_now_ns();
    TraceRecorder::record(event_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  void open(TraceCategory category, const char* name) noexcept {
    new (&event_) TraceEvent{.category = category,
                             .context = TraceContext::current(),
                             .has_context = true,
                             .name = name,
                             .begin_ns = trace_now_ns()};
    open_ = true;
  }
  bool open_;
  union {
    TraceEvent event_;  // valid while open_; left uninitialized when no session runs
  };
};

// Records an instant on this thread's row of the timeline.
inline void trace_mark(const char* name) noexcept {
  if (!TraceRecorder::is_on()) [[likely]]
    return;
  const int64_t now = trace_now_ns();
  TraceRecorder::record({.category = TraceCategory::mark, .name = name, .begin_ns = now, .end_ns = now});
}

}  // namespace tutti
