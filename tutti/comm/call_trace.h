// The events of collectives and messages, for who profiles (tutti/runtime/trace).
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "tutti/comm/call_record.h"
#include "tutti/runtime/trace/trace_recorder.h"

namespace tutti::comm {

// What the events of a group share. Guarded by the lock of its queue.
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

// One call, from the moment its bytes may move to its end. Without a session each costs one look at a flag.
class CallTrace {
 public:
  // The call was accepted by the thread that makes it, and `starts` at once.
  void begin(bool starts) noexcept {
    if (TraceRecorder::is_on()) [[unlikely]] accept(starts);
  }
  void started() noexcept {
    if (is_traced_) [[unlikely]] begin_ns_ = trace_now_ns();
  }
  // By any thread of the rank.
  void end(CallTraceGroup& group, const CallRecord& record, bool failed) noexcept {
    if (is_traced_) [[unlikely]] emit(group, record, failed);
  }

 private:
  void accept(bool starts) noexcept;
  void emit(CallTraceGroup& group, const CallRecord& record, bool failed) noexcept;
  bool is_traced_ = false;
  int64_t begin_ns_ = 0;
  TraceContext context_;  // of the thread that made the call
};

}  // namespace tutti::comm
