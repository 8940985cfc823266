// FlightRecorder: the last calls of one rank, always on, read when something hangs or fails.
//
// A ring of entries, made once; a call costs one reading of the clock, two or three locked instructions and some plain
// stores. Thread rule: any number of threads may record at the same time as long as the calls of one group come from one
// thread at a time (its lock), and any thread may take a dump at any moment. Nobody waits: a call passes over an entry
// in which another thread has fallen asleep while the whole ring went round.
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

#include "tutti/comm/call_record.h"
#include "tutti/comm/recorder/flight_dump.h"
#include "tutti/comm/recorder/tick_clock.h"

namespace tutti::comm {

// What the recorder knows about one group. Belongs to the recorder.
class FlightGroup {
 public:
  FlightGroup(int64_t id, std::string name, std::string description, std::vector<int> ranks)
      : id(id), name(std::move(name)), description(std::move(description)), ranks(std::move(ranks)) {}

  const int64_t id;
  const std::string name;
  const std::string description;
  const std::vector<int> ranks;  // global ranks in group-rank order
  std::atomic<int64_t> timeout_ms{0};  // of calls that have none of their own

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
    int rank = -1;        // -1: of the current RankContext
    int world_size = 0;   // 0: of the current RankContext
    std::string prefix;   // see set_dump_prefix; "": TUTTI_FLIGHT_RECORDER_DUMP, else in the folder for temporary files
  };
  static constexpr int64_t kDefaultEntries = 2000, kMaxEntries = 100'000;

  FlightRecorder() : FlightRecorder(Options{}) {}
  explicit FlightRecorder(const Options& options);
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // The recorder of the current rank. Takes a lock: keep the reference.
  static FlightRecorder& current();

  // `ranks` are global ranks in group-rank order.
  FlightGroup& add_group(std::string name, std::string description, std::vector<int> ranks);
  // The group makes no more calls; it is forgotten when its last entry has left the ring.
  void close_group(FlightGroup& group);

  // A call was accepted. Sizes are bytes of all its inputs and outputs on this rank. Returns its id, from 1.
  uint64_t enqueue(FlightGroup& group, const CallRecord& record, int64_t bytes_in, int64_t bytes_out,
                   int64_t timeout_ms = -1) {
    return write(group, record, bytes_in, bytes_out, timeout_ms, false);
  }
  // The call begins to move data.
  void started(uint64_t id);
  // enqueue() and started() at one moment, for one reading of the clock.
  uint64_t begin(FlightGroup& group, const CallRecord& record, int64_t bytes_in, int64_t bytes_out,
                 int64_t timeout_ms = -1) {
    return write(group, record, bytes_in, bytes_out, timeout_ms, true);
  }
  // The call has ended: completed or failed. `took_time` false saves reading the clock: the call ended at once (in
  // about a microsecond) and its end is recorded as its start.
  void ended(uint64_t id, FlightState state, bool took_time = true);

  // Everything the ring holds. Any thread; calls that are recorded meanwhile may be missing.
  FlightDump snapshot(std::string_view reason) const;

  // Dumps go to <prefix><rank>, written whole or not at all.
  void set_dump_prefix(std::string prefix);
  std::string dump_path() const;
  // Writes a dump and returns its path. EnvironmentError when it cannot be written.
  std::string dump(std::string_view reason) const;
  // Writes a dump because `group` failed, once per group. Returns what to add to the message of the failure: "the last
  // calls are in PATH", why writing failed, or "" when it was done before. Does not throw.
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
