// Boundary: the places between two pieces of a computation, where a thread may attend to what else is under way.
//
// Ops, steps of compiled functions and chunks of parallel loops each end with one. While nothing wants attention,
// passing one costs a load.
#pragma once

#include <atomic>

namespace tutti {

class Boundary {
 public:
  // Any thread.
  static void pass() {
    if (wants_.load(std::memory_order_relaxed) > 0) [[unlikely]]
      attend();
  }
  static bool is_wanted() { return wants_.load(std::memory_order_relaxed) > 0; }
  // Adds to the number of things in this process that want attention. Any thread.
  static void want(int change);
  // Blocks until something wants attention. Any thread.
  static void await_want();
  // Sets what attends, once in a program. It is called by the thread that passes a boundary, never from within itself,
  // and not more often than every few microseconds; it must not block or throw.
  static void set_attendant(void (*attendant)() noexcept);

 private:
  static void attend();
  static std::atomic<int> wants_;
};

}  // namespace tutti
