// TraceRecorder: collects the events of a process and passes them to every running session.
//
// Each thread writes to its own logs, one per session, without locks; only the first event after a session has started
// or stopped takes a lock. While no session runs, recording costs one relaxed load. Recording never throws: events that
// cannot be kept are counted as dropped.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/runtime/trace/trace_event.h"

namespace tutti {

class RankContext;

enum class TraceFilter : uint8_t {
  all_threads,
  this_thread,  // the thread that starts the session, and pool workers while they run its loops
  this_rank,    // threads while they work for the RankContext of the thread that starts the session
};

// The events of one thread for one session, in the order they ended. One thread appends, any thread reads.
class TraceLog {
 public:
  // Throws std::bad_alloc.
  TraceLog(int32_t thread, std::string thread_name, int64_t capacity);
  ~TraceLog();
  TraceLog(const TraceLog&) = delete;
  TraceLog& operator=(const TraceLog&) = delete;

  void append(const TraceEvent& event) noexcept;
  // From now on events are neither kept nor counted.
  void close() noexcept { closed_.store(true, std::memory_order_relaxed); }

  int32_t thread() const { return thread_; }
  const std::string& thread_name() const { return thread_name_; }
  int64_t size() const noexcept { return size_.load(std::memory_order_acquire); }
  int64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }
  const TraceEvent& operator[](int64_t i) const;

 private:
  static constexpr int64_t kChunk = 256;
  const int32_t thread_;
  const std::string thread_name_;
  const int64_t capacity_;
  std::atomic<bool> closed_{false};
  std::atomic<int64_t> size_{0}, dropped_{0};
  std::vector<std::atomic<TraceEvent*>> chunks_;
};

class TraceSession {
 public:
  struct Options {
    std::string name, path;
    TraceFilter filter = TraceFilter::all_threads;
    int64_t events_per_thread = 1 << 18;
    bool memory = true;       // whether memory events are kept
    bool spans_only = false;  // whether only annotations are kept
  };

  const Options options;
  const int64_t start_ns;
  const int32_t start_thread;
  const RankContext* const start_context;

 private:
  friend class TraceRecorder;
  TraceSession(const Options& options, int64_t start_ns, int32_t thread, const RankContext* context)
      : options(options), start_ns(start_ns), start_thread(thread), start_context(context) {}
  bool wants(const TraceEvent& event, int32_t thread, const RankContext* context) const;

  std::vector<std::shared_ptr<TraceLog>> logs_;  // guarded by the recorder's mutex
  std::atomic<int64_t> lost_{0};                 // events of threads for which no log could be allocated
};

// The events that a closed session has collected.
struct TraceHarvest {
  struct Thread {
    std::shared_ptr<const TraceLog> log;
    int64_t size = 0;
  };
  std::vector<Thread> threads;
  int64_t dropped = 0;
  int64_t end_ns = 0;
};

// May be used by any thread.
class TraceRecorder {
 public:
  static constexpr size_t kMaxSessions = 16;

  static TraceRecorder& process();
  // Whether any session is running.
  static bool is_on() noexcept { return sessions_running.load(std::memory_order_relaxed) != 0; }
  // Passes `event` to the sessions that record events of its kind.
  static void record(TraceEvent event) noexcept;

  // Opens a session. Returns null when the limit is reached or another session writes to the same path; `busy` then
  // names the session or sessions. Throws std::bad_alloc.
  std::shared_ptr<TraceSession> open(const TraceSession::Options& options, std::string* busy);
  // Ends the session; call it once.
  TraceHarvest close(const std::shared_ptr<TraceSession>& session) noexcept;
  std::vector<std::string> running() const;  // names

 private:
  struct ThreadTable;
  struct TableOwner;
  TraceRecorder() = default;
  static ThreadTable* table_of_this_thread() noexcept;
  void refresh(ThreadTable& table) noexcept;

  static inline constinit std::atomic<uint32_t> sessions_running{0};

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<TraceSession>> sessions_;
  std::vector<ThreadTable*> tables_;
  std::atomic<uint64_t> generation_{1};  // changes when sessions_ does
};

// The system's id of the calling thread.
int32_t trace_thread_id() noexcept;

}  // namespace tutti
