// All ranks of a group give a value and get those of all, through the store.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tutti/comm/errors.h"
#include "tutti/comm/store/store.h"

namespace tutti::comm {

struct StoreMeeting {
  Store& store;
  std::string key;    // used once; prefixes what is stored
  std::string alarm;  // a key: why nothing will come of it, as any member has found
  int rank;
  int size;
  std::chrono::steady_clock::time_point deadline;
  // Ten times a second while ranks are missing. The PeerError that it throws ends the meeting, of all members.
  std::function<void()> look_around = {};
};

struct Met {
  std::vector<std::string> values;  // by rank
  bool is_last = false;             // all other ranks have theirs, and the store holds nothing of the meeting any more
};

// Returns when all ranks have called it. At the deadline `late` is called with the ranks that have not, and throws.
Met meet_in_store(const StoreMeeting& meeting, const std::string& value, const std::function<void(const std::vector<int>&)>& late);

// What another member has found out.
class MeetingEnded : public PeerError {
 public:
  using PeerError::PeerError;
};

// Ends the meetings with this alarm, of all members that still wait. Throws the first member's reason.
[[noreturn]] void sound_alarm(Store& store, const std::string& alarm, const std::string& reason);
// Throws MeetingEnded when a member has.
void heed_alarm(Store& store, const std::string& alarm);

}  // namespace tutti::comm
