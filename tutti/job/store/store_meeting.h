// An all-gather of values through the store, for ranks that do not have a group yet.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tutti/job/errors.h"
#include "tutti/job/store/store.h"

namespace tutti::comm {

struct StoreMeeting {
  Store& store;
  std::string key;    // prefix of the keys in the store; used only once
  std::string alarm;  // key under which any member can store the reason why the meeting has failed
  int rank;
  int size;
  std::chrono::steady_clock::time_point deadline;
  // Called ten times a second while ranks are missing. A PeerError that it throws ends the meeting for all members.
  std::function<void()> look_around = {};
};

struct Met {
  std::vector<std::string> values;  // by rank
  bool is_last = false;  // all other ranks have the values, and the meeting's keys have been removed from the store
};

// Returns when all ranks have called it. At the deadline, calls `late` with the missing ranks, which must throw.
Met meet_in_store(const StoreMeeting& meeting, const std::string& value,
                  const std::function<void(const std::vector<int>&)>& late);

// Another member has ended the meeting.
class MeetingEnded : public PeerError {
 public:
  using PeerError::PeerError;
};

// Ends the meetings with this alarm key for all members that still wait. Throws the reason given by the first member.
[[noreturn]] void sound_alarm(Store& store, const std::string& alarm, const std::string& reason);
// Throws MeetingEnded when a member has sounded the alarm.
void heed_alarm(Store& store, const std::string& alarm);

}  // namespace tutti::comm
