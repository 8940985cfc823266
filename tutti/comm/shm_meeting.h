// How the ranks of a host wait for each other: meetings, deadlines, and finding out that a peer is gone.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/shm_segment.h"

namespace tutti::comm {

// One rank's side of the meetings. Belongs to one thread, except fail(), which any thread may call.
class ShmMeeting {
 public:
  ShmMeeting(std::shared_ptr<ShmSegment> segment, int rank, std::chrono::milliseconds timeout);
  ~ShmMeeting();
  ShmMeeting(const ShmMeeting&) = delete;
  ShmMeeting& operator=(const ShmMeeting&) = delete;

  // Returns when every rank has come to this meeting; all memory written before by any rank is then visible.
  // EnvironmentError (on every rank, with one text) when a rank died or left, when one failed the group, or when the
  // deadline passed. `what` is the operation for messages, e.g. "all_reduce #42".
  void wait_for_all(std::string_view what);

  // Ends the group: every rank that waits, or waits later, throws `reason`. The first reason wins.
  void fail(std::string_view reason);

 private:
  bool spin_for(uint32_t meeting) const;
  void sleep_for(uint32_t meeting, std::string_view what);
  void throw_if_failed() const;
  // Why the meeting cannot happen any more ("" while it can).
  std::string find_missing(uint32_t meeting, std::string_view what);
  bool is_dead(int rank);

  std::shared_ptr<ShmSegment> segment_;
  ShmHeader& header_;
  int rank_;
  int world_size_;
  std::chrono::milliseconds timeout_;
  uint32_t meetings_;
  int spins_;
  std::vector<int> pidfds_;  // -1 until the peer was first waited for
};

}  // namespace tutti::comm
