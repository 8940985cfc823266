#include "tutti/comm/progress.h"

#include <algorithm>

#include "tutti/runtime/rank_context.h"

namespace tutti::comm {

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

}  // namespace tutti::comm
