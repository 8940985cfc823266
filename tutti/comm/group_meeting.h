// Before a group is created, its members compare their arguments through the store. Without this, ranks that pass
// different lists would search for each other under different names until the deadline.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "tutti/job/host/member_watch.h"
#include "tutti/job/store/store.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::comm {

// The arguments of one member, which must be the same for all members of a new group.
struct GroupWish {
  std::vector<int> ranks;
  std::string name;
  std::string transport;
};

struct MeetingSeat {
  Store& store;
  std::string title;               // for messages: the call
  std::string group;               // the group that is made
  std::string key;                 // of this meeting alone
  std::vector<int> members;        // as messages call them
  std::vector<std::string> names;  // the same with pid and host
  int place = 0;                   // of this rank among them
  std::vector<pid_t> pids;         // of the members, 0 where unknown
  std::vector<FarMember> far;      // those on other hosts
  std::chrono::milliseconds timeout;
};

// Whether the member at `place` has arrived.
bool has_come(Store& store, const std::string& key, int place);

// Returns the arguments of all members when all have arrived. PeerError on all of them when one dies, TimeoutError
// naming those who did not arrive. look() is called from time to time meanwhile.
std::vector<GroupWish> meet_members(const MeetingSeat& seat, const GroupWish& own, FunctionRef<void()> look);
// Call afterwards: the last member to leave removes the keys from the store.
void leave_meeting(const MeetingSeat& seat);

// "" when the two agree in name and transport, else what differs.
std::string differing_terms(int rank_a, const GroupWish& a, int rank_b, const GroupWish& b);
// "" when the lists of all members of a group, by rank, are disjoint or equal and can form groups, else the first
// fault.
std::string why_no_split(const std::vector<GroupWish>& wishes);

}  // namespace tutti::comm
