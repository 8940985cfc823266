// The members of a group that is about to be made tell each other in the store what they want. Without this, ranks that
// give different lists would look for each other under different names until the deadline.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "tutti/comm/shm/member_watch.h"
#include "tutti/comm/store/store.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::comm {

// What a member wants: all members of a new group the same.
struct GroupWish {
  std::vector<int> ranks;
  std::string name;
  std::string transport;
};

struct MeetingSeat {
  Store& store;
  std::string title;         // for messages: the call
  std::string group;         // the group that is made
  std::string key;           // of this meeting alone
  std::vector<int> members;  // as messages call them
  std::vector<std::string> names;  // the same with pid and host
  int place = 0;             // of this rank among them
  std::vector<pid_t> pids;   // of the members, 0 where unknown
  std::vector<FarMember> far;  // those on other hosts
  std::chrono::milliseconds timeout;
};

// Whether the member at `place` has come.
bool has_come(Store& store, const std::string& key, int place);

// Returns what all members want when all have come. PeerError on all of them when one dies, TimeoutError naming those who did not come.
// look() runs now and then meanwhile.
std::vector<GroupWish> meet_members(const MeetingSeat& seat, const GroupWish& own, FunctionRef<void()> look);
// Behind it: who leaves last takes the keys out of the store.
void leave_meeting(const MeetingSeat& seat);

// "" when the two agree in name and transport, else what differs.
std::string differing_terms(int rank_a, const GroupWish& a, int rank_b, const GroupWish& b);
// "" when the lists of all members of a group (by rank) can be groups beside each other, else the first that cannot.
std::string why_no_split(const std::vector<GroupWish>& wishes);

}  // namespace tutti::comm
