// Diagnosis of a hang: compares the flight recorder dumps of several ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/diagnose/flight_dump.h"

namespace tutti::comm {

// One problem in one group. Ranks are global ranks in ascending order.
struct Finding {
  enum class Kind : uint8_t {
    mismatch,   // the ranks' calls with one sequence number differ in `field`
    missing,    // the ranks `missing` have not made the call that the ranks `waiting` are in
    deadlock,   // ranks wait for each other in calls of different groups
    message,    // a send or receive without its counterpart
    late,       // all ranks made the call, some have finished it and `waiting` have not
    under_way,  // all ranks made the call, none has finished it
    failed,     // the call failed on the ranks `waiting`
  };
  Kind kind;
  std::string group;
  int64_t sequence = 0;  // of the call in the group
  std::string call;      // "all_reduce(f32 [1024], sum)"
  std::string field;
  std::vector<int> waiting, missing;
  std::string text;  // one sentence
};
std::string_view name_of(Finding::Kind kind);

struct Diagnosis {
  std::vector<Finding> findings;   // the most likely cause first
  std::vector<int> ranks;          // ranks whose dump was given
  std::vector<int> missing_dumps;  // members of groups whose dump is missing
  bool healthy() const { return findings.empty(); }
  std::string text;  // one paragraph: the first finding in full, then the others, then missing dumps
};

// UsageError when two dumps belong to one rank, or when there are none.
Diagnosis diagnose(std::span<const FlightDump> dumps);

// {"healthy", "text", "findings": [{"kind", "group", "sequence", "call", "field", "waiting", "missing", "text"}],
// "ranks", "missing_dumps"}, one line.
std::string to_json(const Diagnosis& diagnosis);

// "rank 3", "ranks 0-2, 5".
std::string describe_ranks(std::span<const int> ranks);

}  // namespace tutti::comm
