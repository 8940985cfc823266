#include "tutti/comm/progress.h"

#include <algorithm>
#include <system_error>

#include "tutti/core/error.h"
#include "tutti/runtime/boundary.h"
#include "tutti/runtime/fp_environment.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm {

namespace {

[[maybe_unused]] const bool attends = (Boundary::set_attendant([]() noexcept { ProgressList::current().advance(); }), true);

}  // namespace

ProgressList& ProgressList::current() { return RankContext::current().slot<ProgressList>(); }

void ProgressList::add(Driver* driver) {
  const std::lock_guard lock(mutex_);
  drivers_.push_back(driver);
  count_.store(static_cast<int>(drivers_.size()), std::memory_order_relaxed);
}

void ProgressList::remove(Driver* driver) {
  const std::lock_guard lock(mutex_);
  std::erase(drivers_, driver);
  count_.store(static_cast<int>(drivers_.size()), std::memory_order_relaxed);
}

bool ProgressList::advance_others(const Driver* except) {
  if (count_.load(std::memory_order_relaxed) < 2) return false;
  // A thread of this rank that is inside already does the same work.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  bool any = false;
  for (Driver* driver : drivers_) {
    if (driver == except || driver->pending.load(std::memory_order_relaxed) == 0) continue;
    driver->try_advance();
    any = true;
  }
  return any;
}

bool ProgressList::advance() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  bool moved = false;
  for (Driver* driver : drivers_) {
    if (driver->pending.load(std::memory_order_relaxed) == 0) continue;
    const int64_t before = driver->ended.load(std::memory_order_relaxed);
    driver->attend();
    moved = moved || driver->ended.load(std::memory_order_relaxed) != before;
  }
  return moved;
}

ProgressThread::ProgressThread() : context_(RankContext::current()) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw EnvironmentError(fmt::format("ProgressThread: the system cannot create a thread: {}; go without one", error.what()));
  }
}

ProgressThread::~ProgressThread() {
  stops_.store(true, std::memory_order_relaxed);
  Boundary::want(1);  // wakes it
  thread_.join();
  Boundary::want(-1);
}

void ProgressThread::run() {
  const RankContext::Scope scope(context_);
  const FpEnvironmentScope environment;
  ProgressList& list = ProgressList::current();
  constexpr std::chrono::microseconds kFirstNap{10};
  std::chrono::microseconds nap = kFirstNap;
  while (true) {
    Boundary::await_want();
    if (stops_.load(std::memory_order_relaxed)) return;
    nap = list.advance() ? kFirstNap : std::min(2 * nap, kLongestNap);
    std::this_thread::sleep_for(nap);
  }
}

}  // namespace tutti::comm
