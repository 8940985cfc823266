// Progress: every blocking wait of a rank brings forward all that the rank has under way.
//
// Nothing in a group moves by itself: collectives advance while somebody waits. A rank that waits in one group therefore
// looks after its other groups too, so that peers which wait for those are not held up.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

namespace tutti::comm {

// Something that has calls under way.
class Driver {
 public:
  virtual ~Driver() = default;
  // Brings calls forward if nobody else is at it; never blocks.
  virtual void try_advance() = 0;

 protected:
  // Calls under way that nobody is known to wait for.
  std::atomic<int> pending{0};
  friend class ProgressList;
};

// The drivers of one rank; a slot of its RankContext. Any thread of the rank.
class ProgressList {
 public:
  static ProgressList& current();

  void add(Driver* driver);
  void remove(Driver* driver);
  // True when a driver other than `except` has something under way (and was brought forward).
  bool advance_others(const Driver* except);

 private:
  std::mutex mutex_;
  std::vector<Driver*> drivers_;
  std::atomic<int> count_{0};
};

}  // namespace tutti::comm
