// FlightDump: what one rank's flight recorder holds at a moment, as values; written to and read from JSON.
//
// The JSON has the keys of version 2.10 of the format that c10d's recorder writes, so that tools for it can read ours,
// and some of our own (call, reduce_op, root, tag, tensors, same_sizes, splits, error) without which calls cannot be
// compared fully. docs/comm.md lists them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::comm {

enum class FlightState : uint8_t { scheduled, started, completed, failed };
std::string_view name_of(FlightState state);

struct FlightEntry {
  int64_t record_id = 0;  // from 0, in the order of recording
  int64_t pg_id = 0;
  std::string group;
  std::string group_description;
  int64_t sequence = 0;  // of the call among the collectives of its group, or among its messages
  bool is_p2p = false;
  std::string name;      // "all_reduce"
  std::string call;      // "all_reduce(f32 [1024], sum)"; "" in files of other programs
  std::vector<std::vector<int64_t>> input_sizes, output_sizes;  // one per tensor, as far as known
  std::vector<std::string> input_dtypes, output_dtypes;
  std::string reduce_op;  // "" when the call has none
  int64_t root = -1;      // group rank; messages: the peer; -1: none
  int64_t tag = 0;
  int64_t tensors = 1;
  bool same_sizes = true;  // whether the sizes of all ranks must agree
  uint64_t splits = 0;     // equal on all ranks that agree on their splits and further tensors
  int64_t created_ns = 0;    // since 1970; 0: it has not happened
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  int64_t timeout_ms = 0;
  FlightState state = FlightState::scheduled;
  int64_t thread_id = 0;
  std::string thread_name;
};

struct FlightMark {
  int64_t sequence = -1;  // -1: no collective yet
  std::string name;
  int64_t numel_in = 0, numel_out = 0;
};

struct FlightGroupStatus {
  int64_t id = 0;
  std::string name;
  std::string description;
  std::vector<int> ranks;  // global ranks in group-rank order
  FlightMark enqueued, started, completed;
};

struct FlightDump {
  std::string version = "2.10";
  std::string library;  // "tutti 0.1.0"
  int64_t rank = -1;
  int64_t world_size = 0;
  std::string host;
  int64_t pid = 0;
  std::string reason;  // why it was written
  int64_t dumped_ns = 0;
  std::vector<FlightGroupStatus> groups;
  std::vector<FlightEntry> entries;  // oldest first
  std::string file;                  // where it was read from; not part of the JSON
};

// One object, keys in a fixed order, one entry a line.
std::string to_json(const FlightDump& dump);

inline constexpr int64_t kMaxFlightDumpBytes = int64_t{256} << 20;

// UsageError naming file and place for everything that is not a dump: a byte, or a path such as entries[3].state
// (runtime/json_document.h). A file of another program that names no rank gets the number at the end of its name.
FlightDump read_flight_dump(std::string_view json, const std::string& file);
// EnvironmentError when the file cannot be read, UsageError when it is larger than kMaxFlightDumpBytes or no regular file.
FlightDump read_flight_dump_file(const std::string& file);

}  // namespace tutti::comm
