// The dumps of several ranks put side by side, and what can be wrong with one group. Private parts of diagnosis.h.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tutti/diagnose/diagnosis.h"

namespace tutti::comm::detail {

// The records of one rank about one group.
struct Member {
  const FlightDump* dump = nullptr;
  const FlightGroupStatus* status = nullptr;
  std::map<int64_t, const FlightEntry*> calls;  // collectives by sequence
  std::vector<const FlightEntry*> messages;     // open sends and receives
  int64_t enqueued = 0, completed = 0;          // last sequence numbers, 0: none
  const FlightEntry* first_open = nullptr;
};

struct Group {
  std::string name;
  std::vector<int> ranks;         // global, in group-rank order
  std::map<int, Member> members;  // by global rank
};

struct Case {
  std::vector<int> ranks;  // with a dump
  std::map<std::string, Group> groups;
  std::set<int> without_dump;
};

Case gather_case(std::span<const FlightDump> dumps);

bool is_open(const FlightEntry& e);
// The text of a call; other programs' files only have its parts.
std::string call_text(const FlightEntry& e);
// "all_reduce #183 of group 'dp' (f32 [1024], sum)"
std::string numbered(const FlightEntry& e);

// Each adds what it finds.
// The first call of a group in which two ranks differ.
void find_mismatch(const Group& group, std::vector<Finding>& findings);
// The first call that failed and after which nothing went well.
void find_failed(const Group& group, std::vector<Finding>& findings);
// The earliest call of a group that some rank has not finished.
void find_waiting(const Case& all, const Group& group, std::vector<Finding>& findings);
// Open messages whose other side has no open counterpart.
void find_messages(const Case& all, const Group& group, std::vector<Finding>& findings);

}  // namespace tutti::comm::detail
