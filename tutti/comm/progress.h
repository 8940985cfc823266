// Progress: who moves the outstanding calls of a rank.
//
// - Every blocking wait, in whatever group: while waiting in one group, a rank also progresses its outstanding calls in
// other groups, so that
//   peers that wait for those are not held up.
// - The computation itself, at each boundary (runtime/boundary.h): after every op, after every step of a compiled
// function and between the
//   chunks of a parallel loop.
// - A ProgressThread, if the rank has one.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/runtime/function_ref.h"

namespace tutti {
class RankContext;
}  // namespace tutti

namespace tutti::comm {

// Objects that a driver needs no more. They may hold the last reference to the driver, and are therefore released by
// the caller.
using Released = std::vector<std::shared_ptr<const void>>;

// An object with outstanding calls.
class Driver {
 public:
  virtual ~Driver() = default;
  // Progresses the calls unless another thread is doing so; never blocks.
  virtual void try_advance(Released& released) = 0;
  // The same for a caller to whom no callback may throw: what one throws comes out of the next call that runs
  // callbacks.
  virtual void attend(Released& released) = 0;

 protected:
  // The number of outstanding calls that no thread is known to wait for.
  std::atomic<int> pending{0};
  // The number of rounds and calls that have ended.
  std::atomic<int64_t> ended{0};
  friend class ProgressList;
};

// The drivers of one rank; a slot of its RankContext. Any thread of the rank. Callbacks that a driver runs may make
// groups and drop them, also the last reference to the group whose call has ended.
class ProgressList {
 public:
  static ProgressList& current();

  void add(Driver* driver);
  void remove(Driver* driver);
  // Progresses the drivers other than `except`; true when one of them has outstanding calls.
  bool advance_others(const Driver* except);
  // Progresses all drivers; true when a round or a call of one has ended.
  bool advance();

 private:
  // Calls visit(driver, released) for each driver with outstanding calls, unless a thread of the rank is doing so.
  void for_each_pending(FunctionRef<void(Driver& driver, Released& released)> visit);
  // Runs `change` while no other thread walks over the list.
  void change(FunctionRef<void()> change);

  std::mutex mutex_;
  std::atomic<std::thread::id> walker_{};  // the thread that holds the mutex and walks over the list
  std::vector<Driver*> drivers_;           // null: removed by the walker
  std::atomic<int> count_{0};
};

// A thread that progresses the outstanding calls of the rank that makes it, while this object lives. It sleeps while
// there are none, and between looks that change nothing, for up to `kLongestNap`. It pays where a core is free, or
// where one long op follows the other. Callbacks of Work::then() may then run on it.
class ProgressThread {
 public:
  static constexpr std::chrono::microseconds kLongestNap{200};
  // EnvironmentError when the system cannot create the thread.
  ProgressThread();
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

 private:
  void run();

  RankContext& context_;
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace tutti::comm
