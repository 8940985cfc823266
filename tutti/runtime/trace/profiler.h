// Profiler: a session that collects events of ops, kernels, external calls, collectives and memory.
//
//   Profiler profiler;
//   profiler.start({.name = "one step", .path = "trace.json"});
//   ...
//   profiler.stop();  // trace.json opens in Perfetto
//
// Up to TraceRecorder::kMaxSessions sessions may nest and overlap; each gets all events that it asked for. A
// session may be started and stopped by different threads. Nothing here throws or affects results: if a session
// cannot start or a file cannot be written, the returned status says so.
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
    busy,         // blocked by another session, which the message names
    not_running,  // stop() without start(), or a second stop()
    failed,       // out of memory, or the file cannot be written; the message says why
  };
  Kind kind = Kind::ok;
  std::string message;
  bool ok() const { return kind == Kind::ok; }
};

struct ProfilerOptions {
  std::string name = "profile";
  std::string path;  // file to which stop() writes the Chrome trace; empty: none
  TraceFilter filter = TraceFilter::all_threads;
  // How many events are kept per thread; further events are counted as dropped. An event takes about 180 bytes.
  int64_t events_per_thread = 1 << 18;
  bool memory = true;       // also record allocations
  bool spans_only = false;  // record annotations and nothing else
};

// May be used by any thread. The destructor stops the session.
class Profiler {
 public:
  Profiler() = default;
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  ProfilerStatus start(const ProfilerOptions& options = {}) noexcept;
  // Ends the session and writes its file. The trace is kept even if the file cannot be written.
  ProfilerStatus stop() noexcept;
  bool is_running() const;

  // The trace of the last session; empty before the first stop().
  Trace trace() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<TraceSession> session_;
  Trace trace_;
};

}  // namespace tutti
