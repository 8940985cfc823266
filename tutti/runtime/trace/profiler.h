// Profiler: a session that collects events of ops, kernels, extern calls, collectives and memory.
//
//   Profiler profiler;
//   profiler.start({.name = "one step", .path = "trace.json"});
//   ...
//   profiler.stop();  // trace.json opens in Perfetto
//
// Any number of sessions up to TraceRecorder::kMaxSessions nest and overlap; each has all events that it asked for. A
// session may be started and stopped by different threads. Nothing here throws or changes what is computed: a session
// that cannot start, or a file that cannot be written, is a status that the caller may look at.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "tutti/runtime/trace/trace.h"
#include "tutti/runtime/trace/trace_recorder.h"

namespace tutti {

struct ProfilerStatus {
  enum class Kind : uint8_t {
    ok,
    busy,         // another session is in the way: message says which
    not_running,  // stop() without start(), or a second stop()
    failed,       // memory is short, or the file cannot be written: message says why
  };
  Kind kind = Kind::ok;
  std::string message;
  bool ok() const { return kind == Kind::ok; }
};

struct ProfilerOptions {
  std::string name = "profile";
  std::string path;  // where stop() writes the Chrome trace; empty: nowhere
  TraceFilter filter = TraceFilter::all_threads;
  // Kept per thread; what comes later is counted as dropped. An event takes about 180 bytes.
  int64_t events_per_thread = 1 << 18;
  bool memory = true;  // also the events of allocations
};

// Any thread may call anything. The destructor stops.
class Profiler {
 public:
  Profiler() = default;
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  ProfilerStatus start(const ProfilerOptions& options = {}) noexcept;
  // Ends the session and writes its file. The trace is kept even when the file cannot be written.
  ProfilerStatus stop() noexcept;
  bool is_running() const;

  // What the last session collected; empty before the first stop().
  Trace trace() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<TraceSession> session_;
  Trace trace_;
};

}  // namespace tutti
