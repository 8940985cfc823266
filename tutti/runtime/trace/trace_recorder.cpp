#include "tutti/runtime/trace/trace_recorder.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "tutti/core/error.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {

int32_t trace_thread_id() noexcept {
  static constinit thread_local int32_t id = 0;
  if (id == 0) id = static_cast<int32_t>(syscall(SYS_gettid));
  return id;
}

// ---- log ------------------------------------------------------------------------------------------------------------

TraceLog::TraceLog(int32_t thread, std::string thread_name, int64_t capacity)
    : thread_(thread),
      thread_name_(std::move(thread_name)),
      capacity_(capacity),
      chunks_(static_cast<size_t>((capacity + kChunk - 1) / kChunk)) {}

TraceLog::~TraceLog() {
  for (std::atomic<TraceEvent*>& chunk : chunks_) delete[] chunk.load();
}

void TraceLog::append(const TraceEvent& event) noexcept {
  if (closed_.load(std::memory_order_relaxed)) return;
  const int64_t i = size_.load(std::memory_order_relaxed);
  TraceEvent* chunk = nullptr;
  if (i < capacity_) {
    std::atomic<TraceEvent*>& place = chunks_[static_cast<size_t>(i / kChunk)];
    chunk = place.load(std::memory_order_relaxed);
    if (chunk == nullptr) {
      chunk = new (std::nothrow) TraceEvent[static_cast<size_t>(std::min(kChunk, capacity_ - i))];
      place.store(chunk, std::memory_order_release);
    }
  }
  if (chunk == nullptr) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  chunk[i % kChunk] = event;
  size_.store(i + 1, std::memory_order_release);
}

const TraceEvent& TraceLog::operator[](int64_t i) const {
  TUTTI_ASSERT(i >= 0 && i < size(), "event {} of {}", i, size());
  return chunks_[static_cast<size_t>(i / kChunk)].load(std::memory_order_acquire)[i % kChunk];
}

// ---- threads --------------------------------------------------------------------------------------------------------

// The logs of one thread. `inside` is true while the thread uses it; who changes sessions_ looks at it afterwards and
// clears the table of a thread that is outside, which takes the lock before it comes in again.
struct TraceRecorder::ThreadTable {
  struct Entry {
    std::shared_ptr<TraceSession> session;
    std::shared_ptr<TraceLog> log;
  };
  std::atomic<bool> inside{false};
  // Read by the thread when it comes in, perhaps while the lock's holder clears the table: whichever value it then sees
  // is not the recorder's, and it waits for the lock.
  std::atomic<uint64_t> generation{0};
  std::vector<Entry> entries;
};

struct TraceRecorder::TableOwner {
  ThreadTable table;
  static constinit thread_local ThreadTable* mine;
  static constinit thread_local bool ended;  // tensors of other thread_locals may still be freed

  TableOwner() {
    TraceRecorder& recorder = process();
    const std::lock_guard lock(recorder.mutex_);
    recorder.tables_.push_back(&table);
    mine = &table;
  }
  ~TableOwner() {
    mine = nullptr;
    ended = true;
    TraceRecorder& recorder = process();
    const std::lock_guard lock(recorder.mutex_);
    std::erase(recorder.tables_, &table);
  }
};
constinit thread_local TraceRecorder::ThreadTable* TraceRecorder::TableOwner::mine = nullptr;
constinit thread_local bool TraceRecorder::TableOwner::ended = false;

TraceRecorder::ThreadTable* TraceRecorder::table_of_this_thread() noexcept {
  if (TableOwner::mine != nullptr) [[likely]]
    return TableOwner::mine;
  if (TableOwner::ended) return nullptr;
  try {
    static thread_local TableOwner owner;
    return &owner.table;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

TraceRecorder& TraceRecorder::process() {
  static auto* recorder = new TraceRecorder;  // outlives all threads
  return *recorder;
}

bool TraceSession::wants(const TraceEvent& event, int32_t thread, const RankContext* context) const {
  if (event.begin_ns < start_ns || (event.category == TraceCategory::memory && !options.memory)) return false;
  if (options.spans_only && event.category != TraceCategory::annotation) return false;
  switch (options.filter) {
    case TraceFilter::all_threads:
      return true;
    case TraceFilter::this_thread:
      return (event.context.origin != 0 ? event.context.origin : thread) == start_thread;
    case TraceFilter::this_rank:
      return context == start_context;
  }
  return false;
}

void TraceRecorder::record(TraceEvent event) noexcept {
  ThreadTable* table = table_of_this_thread();
  if (table == nullptr) return;
  const RankContext& context = RankContext::current();
  const int32_t thread = trace_thread_id();
  event.rank = context.rank();
  if (!event.has_context) event.context = TraceContext::current();
  if (event.kernel != nullptr && event.call < 0)
    event.call = event.kernel->calls.fetch_add(1, std::memory_order_relaxed);

  TraceRecorder& recorder = process();
  // Sequentially consistent with close(): either this thread sees the new generation, or close() sees it inside.
  table->inside.store(true, std::memory_order_seq_cst);
  if (table->generation.load(std::memory_order_relaxed) != recorder.generation_.load(std::memory_order_seq_cst))
    recorder.refresh(*table);
  for (ThreadTable::Entry& entry : table->entries) {
    if (entry.session->wants(event, thread, &context)) entry.log->append(event);
  }
  table->inside.store(false, std::memory_order_release);
}

void TraceRecorder::refresh(ThreadTable& table) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(table.entries, [this](const ThreadTable::Entry& entry) {
    return std::find(sessions_.begin(), sessions_.end(), entry.session) == sessions_.end();
  });
  for (const std::shared_ptr<TraceSession>& session : sessions_) {
    const bool has = std::any_of(table.entries.begin(), table.entries.end(),
                                 [&](const auto& entry) { return entry.session == session; });
    if (has) continue;
    try {
      const int32_t id = trace_thread_id();
      auto log = std::make_shared<TraceLog>(id,
                                            id == getpid()                        ? "main thread"
                                            : TraceContext::current().origin != 0 ? "pool worker"
                                                                                  : "",
                                            session->options.events_per_thread);
      table.entries.reserve(table.entries.size() + 1);
      session->logs_.push_back(log);
      table.entries.push_back({session, std::move(log)});
    } catch (const std::bad_alloc&) {
      session->lost_.fetch_add(1, std::memory_order_relaxed);  // at least this event
    }
  }
  table.generation.store(generation_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

// ---- sessions -------------------------------------------------------------------------------------------------------

std::shared_ptr<TraceSession> TraceRecorder::open(const TraceSession::Options& options, std::string* busy) {
  const std::lock_guard lock(mutex_);
  for (const std::shared_ptr<TraceSession>& session : sessions_) {
    if (options.path.empty() || session->options.path != options.path) continue;
    *busy = fmt::format("the session '{}', which writes to the same file {}", session->options.name, options.path);
    return nullptr;
  }
  if (sessions_.size() >= kMaxSessions) {
    *busy = fmt::format("{} sessions, the most there may be; the oldest is '{}'", sessions_.size(),
                        sessions_.front()->options.name);
    return nullptr;
  }
  std::shared_ptr<TraceSession> session(
      new TraceSession(options, trace_now_ns(), trace_thread_id(), &RankContext::current()));
  sessions_.push_back(session);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  sessions_running.fetch_add(1, std::memory_order_relaxed);
  return session;
}

TraceHarvest TraceRecorder::close(const std::shared_ptr<TraceSession>& session) noexcept {
  TraceHarvest harvest;
  std::vector<std::shared_ptr<TraceLog>> logs;
  {
    const std::lock_guard lock(mutex_);
    std::erase(sessions_, session);
    sessions_running.fetch_sub(1, std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_seq_cst);
    harvest.end_ns = trace_now_ns();
    logs.swap(session->logs_);
    for (const std::shared_ptr<TraceLog>& log : logs) log->close();
    // A thread that records nothing more would hold on to its log.
    for (ThreadTable* table : tables_) {
      if (table->inside.load(std::memory_order_seq_cst)) continue;
      std::erase_if(table->entries, [&](const ThreadTable::Entry& entry) { return entry.session == session; });
      table->generation.store(0, std::memory_order_relaxed);
    }
  }
  harvest.dropped = session->lost_.load(std::memory_order_relaxed);
  try {
    harvest.threads.reserve(logs.size());
    for (std::shared_ptr<TraceLog>& log : logs) {
      harvest.dropped += log->dropped();
      const int64_t size = log->size();
      if (size > 0) harvest.threads.push_back({std::move(log), size});
    }
  } catch (const std::bad_alloc&) {
    for (const std::shared_ptr<TraceLog>& log : logs) harvest.dropped += log ? log->size() : 0;
  }
  return harvest;
}

std::vector<std::string> TraceRecorder::running() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const std::shared_ptr<TraceSession>& session : sessions_) names.push_back(session->options.name);
  return names;
}

}  // namespace tutti
