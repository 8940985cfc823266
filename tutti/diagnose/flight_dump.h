// FlightDump: a snapshot of one rank's flight recorder, written to and read from JSON.
//
// The JSON has the keys of version 2.10 of the format that c10d's flight recorder writes, so that its tools can read
// the dumps, and additional ones (call, reduce_op, root, tag, tensors, same_sizes, splits, error), which are needed to
// compare calls completely. docs/comm.md lists them.
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
  int64_t sequence = 0;  // number of the call among the collectives, or the messages, of its group
  bool is_p2p = false;
  std::string name;  // "all_reduce"
  std::string call;  // "all_reduce(f32 [1024], sum)"; "" in files by other programs
  std::vector<std::vector<int64_t>> input_sizes, output_sizes;  // one per tensor, as far as known
  std::vector<std::string> input_dtypes, output_dtypes;
  std::string reduce_op;  // "" when the call has none
  int64_t root = -1;      // group rank; messages: the peer; -1: none
  int64_t tag = 0;
  int64_t tensors = 1;
  bool same_sizes = true;  // whether the sizes of all ranks must agree
  uint64_t splits = 0;     // a hash, equal on ranks that agree on their splits and further tensors
  int64_t created_ns = 0;  // this and the next two: nanoseconds since 1970; 0: not yet
  int64_t started_ns = 0;
  int64_t ended_ns = 0;
  int64_t timeout_ms = 0;
  FlightState state = FlightState::scheduled;
  int64_t thread_id = 0;
  std::string thread_name;
};

struct FlightMark {
  int64_t sequence = -1;  // -1: no collective so far
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
  std::string reason;  // why the dump was written
  int64_t dumped_ns = 0;
  std::vector<FlightGroupStatus> groups;
  std::vector<FlightEntry> entries;  // oldest first
  std::string file;                  // where it was read from; not part of the JSON
};

// One JSON object with keys in a fixed order and one entry per line.
std::string to_json(const FlightDump& dump);

inline constexpr int64_t kMaxFlightDumpBytes = int64_t{256} << 20;

// UsageError, naming the file and the place (line and column, or a path such as entries[3].state, see
// runtime/json_document.h), for anything that is not a dump. For a file by another program without a rank, the rank is
// the number at the end of its name.
FlightDump read_flight_dump(std::string_view json, const std::string& file);
// EnvironmentError when the file cannot be read, UsageError when it is larger than kMaxFlightDumpBytes or not a regular
// file.
FlightDump read_flight_dump_file(const std::string& file);

}  // namespace tutti::comm
