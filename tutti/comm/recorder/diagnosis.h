// Why does nothing move? Compares the flight recorder dumps of several ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/recorder/flight_dump.h"

namespace tutti::comm {

// One thing that is wrong in one group. Ranks are global ranks, ascending.
struct Finding {
  enum class Kind : uint8_t {
    mismatch,      // the ranks' calls of one number differ: `field` says in what
    missing,       // `missing` did not come to the call that `waiting` are in
    deadlock,      // ranks wait for each other in calls of different groups
    message,       // a send or receive without its counterpart
    late,          // all came, some have ended and `waiting` have not
    under_way,     // all came, none has ended
    failed,        // the call failed on `waiting`
  };
  Kind kind;
  std::string group;
  int64_t sequence = 0;  // of the call in the group
  std::string call;      // "all_reduce(f32 [1024], sum)"
  std::string field;
  std::vector<int> waiting, missing;
  std::string text;      // one sentence
};
std::string_view name_of(Finding::Kind kind);

struct Diagnosis {
  std::vector<Finding> findings;   // the likely cause first
  std::vector<int> ranks;          // that gave a dump
  std::vector<int> missing_dumps;  // members of groups that gave none
  bool healthy() const { return findings.empty(); }
  std::string text;  // one paragraph: the first finding in full, then the others, then missing dumps
};

// UsageError when two dumps are of one rank, or there is none.
Diagnosis diagnose(std::span<const FlightDump> dumps);

// {"healthy", "text", "findings": [{"kind", "group", "sequence", "call", "field", "waiting", "missing", "text"}], "ranks",
// "missing_dumps"}, one line.
std::string to_json(const Diagnosis& diagnosis);

// "rank 3", "ranks 0-2, 5".
std::string describe_ranks(std::span<const int> ranks);

}  // namespace tutti::comm
