// Progress: every blocking wait of a rank progresses all of its outstanding calls.
//
// Collectives have no progress thread; they advance only while a rank waits. While waiting in one group, a rank therefore also
// progresses its outstanding calls in other groups, so that peers that wait for those are not held up.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

namespace tutti::comm {

// An object with outstanding calls.
class Driver {
 public:
  virtual ~Driver() = default;
  // Progresses the calls unless another thread is doing so; never blocks.
  virtual void try_advance() = 0;

 protected:
  // The number of outstanding calls that no thread is known to wait for.
  std::atomic<int> pending{0};
  friend class ProgressList;
};

// The drivers of one rank; a slot of its RankContext. Any thread of the rank.
class ProgressList {
 public:
  static ProgressList& current();

  void add(Driver* driver);
  void remove(Driver* driver);
  // Progresses the drivers other than `except`; true when one of them has outstanding calls.
  bool advance_others(const Driver* except);

 private:
  std::mutex mutex_;
  std::vector<Driver*> drivers_;
  std::atomic<int> count_{0};
};

}  // namespace tutti::comm
