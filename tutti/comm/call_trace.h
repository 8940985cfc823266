// Profiler events of collectives and messages (tutti/runtime/trace).
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "tutti/diagnose/call_record.h"
#include "tutti/runtime/trace/trace_recorder.h"

namespace tutti::comm {

// The shared state of a group's events. Protected by the lock of its queue.
class CallTraceGroup {
 public:
  // `transport` is a literal.
  CallTraceGroup(TraceGroup group, const char* transport) : group_(std::move(group)), transport_(transport) {}

 private:
  friend class CallTrace;
  const TraceKernel& kernel_of(const CallRecord& record);

  const TraceGroup group_;
  const char* const transport_;
  const TraceGroup* interned_ = nullptr;
  std::map<std::pair<CollectiveKind, DType>, const TraceKernel*> kernels_;
};

// The event of one call, from the time at which data may be transferred to its end. Without a session it costs one test
// of a flag.
class CallTrace {
 public:
  // Call when the call is accepted, on the thread that makes it; `starts`: it starts immediately.
  void begin(bool starts) noexcept {
    if (TraceRecorder::is_on()) [[unlikely]]
      accept(starts);
  }
  void started() noexcept {
    if (is_traced_) [[unlikely]]
      begin_ns_ = trace_now_ns();
  }
  // May be called by any thread of the rank.
  void end(CallTraceGroup& group, const CallRecord& record, bool failed) noexcept {
    if (is_traced_) [[unlikely]]
      emit(group, record, failed);
  }

 private:
  void accept(bool starts) noexcept;
  void emit(CallTraceGroup& group, const CallRecord& record, bool failed) noexcept;
  bool is_traced_ = false;
  int64_t begin_ns_ = 0;
  TraceContext context_;  // of the thread that made the call
};

}  // namespace tutti::comm
