// FlightRecorder: records the last calls of one rank. It is always on, and its contents are read when something hangs
// or fails.
//
// It is a ring of entries that is allocated once; recording a call costs one clock read, two or three locked
// instructions and some plain stores. Any number of threads may record at the same time as long as the calls of one
// group come from one thread at a time (under its lock), and any thread may take a dump at any time. No thread waits: a
// call skips an entry that another thread, suspended while the whole ring was overwritten, is still writing.
//
//   FlightGroup& group = recorder.add_group("dp", "data parallel", {0, 1, 2, 3});
//   const uint64_t id = recorder.begin(group, record, bytes_in, bytes_out);
//   ...
//   recorder.ended(id, FlightState::completed, waited);
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/diagnose/call_record.h"
#include "tutti/diagnose/flight_dump.h"
#include "tutti/diagnose/tick_clock.h"

namespace tutti::comm {

// The recorder's state for one group. Owned by the recorder.
class FlightGroup {
 public:
  FlightGroup(int64_t id, std::string name, std::string description, std::vector<int> ranks)
      : id(id), name(std::move(name)), description(std::move(description)), ranks(std::move(ranks)) {}

  const int64_t id;
  const std::string name;
  const std::string description;
  const std::vector<int> ranks;        // global ranks in group-rank order
  std::atomic<int64_t> timeout_ms{0};  // default for calls without their own timeout

 private:
  friend class FlightRecorder;
  struct Mark {
    std::atomic<uint64_t> what{0};  // sequence << 16 | dtype << 8 | kind; 0: no collective yet
    std::atomic<int64_t> bytes_in{0}, bytes_out{0};
  };
  Mark enqueued_, started_, completed_;
  std::atomic<uint64_t> last_id_{0};
  std::atomic<bool> dumped_{false};
  bool closed_ = false;
};

class FlightRecorder {
 public:
  struct Options {
    int64_t entries = 0;  // 0: TUTTI_FLIGHT_RECORDER_ENTRIES, else 2000; at most kMaxEntries
    int rank = -1;        // -1: that of the current RankContext
    int world_size = 0;   // 0: that of the current RankContext
    std::string prefix;  // see set_dump_prefix(); "": TUTTI_FLIGHT_RECORDER_DUMP, else in a private folder of this user
  };
  static constexpr int64_t kDefaultEntries = 2000, kMaxEntries = 100'000;

  FlightRecorder() : FlightRecorder(Options{}) {}
  explicit FlightRecorder(const Options& options);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // The recorder of the current rank. Takes a lock, so keep the reference.
  static FlightRecorder& current();

  // `ranks` are global ranks in group-rank order.
  FlightGroup& add_group(std::string name, std::string description, std::vector<int> ranks);
  // Call when the group makes no more calls; it is removed once its last entry has left the ring.
  void close_group(FlightGroup& group);

  // Records that a call was accepted. Sizes are the bytes of all its inputs and outputs on this rank. Returns its id,
  // from 1.
  uint64_t enqueue(FlightGroup& group, const CallRecord& record, int64_t bytes_in, int64_t bytes_out,
                   int64_t timeout_ms = -1) {
    return write(group, record, bytes_in, bytes_out, timeout_ms, false);
  }
  // Records that the call begins to move data.
  void started(uint64_t id);
  // enqueue() and started() at the same time, with a single clock read.
  uint64_t begin(FlightGroup& group, const CallRecord& record, int64_t bytes_in, int64_t bytes_out,
                 int64_t timeout_ms = -1) {
    return write(group, record, bytes_in, bytes_out, timeout_ms, true);
  }
  // Records that the call has completed or failed. With `took_time` = false the clock is not read: the call took only
  // about a microsecond, and its start time is recorded as its end.
  void ended(uint64_t id, FlightState state, bool took_time = true);

  // The contents of the ring. Any thread; calls recorded meanwhile may be missing.
  FlightDump snapshot(std::string_view reason) const;

  // Dumps are written to <prefix><rank>, atomically, for this user's eyes only. Without a prefix: to <parent
  // pid>-<rank> in the folder tutti-flight-<uid> among the temporary files, which is made here if need be and is this
  // user's alone; where it is not, a folder that only this process knows stands in for it.
  void set_dump_prefix(std::string prefix);
  std::string dump_path() const;
  // Writes a dump and returns its path. EnvironmentError when it cannot be written.
  std::string dump(std::string_view reason) const;
  // Writes a dump because `group` failed, once per group. Returns a text for the message of the failure: "the last
  // calls are in PATH", why writing failed, or "" when a dump was already written. Does not throw.
  std::string dump_on_failure(FlightGroup& group, std::string_view reason) noexcept;

  int rank() const { return rank_; }
  int64_t entries() const { return entries_; }

 private:
  struct Slot;
  uint64_t write(FlightGroup& group, const CallRecord& record, int64_t bytes_in, int64_t bytes_out, int64_t timeout_ms,
                 bool starts);
  Slot& slot_of(uint64_t id) const;
  static void mark(FlightGroup::Mark& mark, uint64_t what, uint64_t bytes_in, uint64_t bytes_out);
  static void mark(FlightGroup::Mark& mark, const Slot& slot);

  const TickClock clock_;
  const int64_t entries_;
  const int rank_, world_size_;
  uint64_t mask_ = 0;
  std::unique_ptr<Slot[]> ring_;
  alignas(64) std::atomic<uint64_t> next_{1};
  alignas(64) mutable std::mutex mutex_;  // groups and prefix
  std::vector<std::unique_ptr<FlightGroup>> groups_;
  int64_t next_group_ = 0;
  std::string prefix_;
};

}  // namespace tutti::comm
