#include "tutti/comm/progress.h"

#include <algorithm>
#include <system_error>

#include "tutti/core/error.h"
#include "tutti/runtime/boundary.h"
#include "tutti/runtime/fp_environment.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm {

namespace {

[[maybe_unused]] const bool attends =
    (Boundary::set_attendant([]() noexcept { ProgressList::current().advance(); }), true);

}  // namespace

ProgressList& ProgressList::current() { return RankContext::current().slot<ProgressList>(); }

void ProgressList::change(FunctionRef<void()> change) {
  if (walker_.load(std::memory_order_relaxed) == std::this_thread::get_id()) return change();
  const std::lock_guard lock(mutex_);
  change();
}

void ProgressList::add(Driver* driver) {
  change([&] {
    drivers_.push_back(driver);
    count_.fetch_add(1, std::memory_order_relaxed);
  });
}

void ProgressList::remove(Driver* driver) {
  change([&] {
    // The walker counts on the places of the others.
    std::replace(drivers_.begin(), drivers_.end(), driver, static_cast<Driver*>(nullptr));
    if (walker_.load(std::memory_order_relaxed) == std::thread::id()) std::erase(drivers_, nullptr);
    count_.fetch_sub(1, std::memory_order_relaxed);
  });
}

void ProgressList::for_each_pending(FunctionRef<void(Driver& driver, Released& released)> visit) {
  if (walker_.load(std::memory_order_relaxed) == std::this_thread::get_id()) return;  // from a callback that waits
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  struct Walk {
    ProgressList& list;
    explicit Walk(ProgressList& l) : list(l) {
      list.walker_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    }
    ~Walk() {
      std::erase(list.drivers_, nullptr);
      list.walker_.store({}, std::memory_order_relaxed);
    }
  } const walk(*this);
  for (size_t i = 0; i < drivers_.size(); ++i) {
    Driver* const driver = drivers_[i];
    if (driver == nullptr || driver->pending.load(std::memory_order_relaxed) == 0) continue;
    Released released;  // with it the driver may go
    visit(*driver, released);
  }
}

bool ProgressList::advance_others(const Driver* except) {
  if (count_.load(std::memory_order_relaxed) < 2) return false;
  bool any = false;
  for_each_pending([&](Driver& driver, Released& released) {
    if (&driver == except) return;
    any = true;
    driver.try_advance(released);
  });
  return any;
}

bool ProgressList::advance() {
  bool moved = false;
  for_each_pending([&](Driver& driver, Released& released) {
    const int64_t before = driver.ended.load(std::memory_order_relaxed);
    driver.attend(released);
    moved = moved || driver.ended.load(std::memory_order_relaxed) != before;
  });
  return moved;
}

ProgressThread::ProgressThread() : context_(RankContext::current()) {
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw EnvironmentError(
        fmt::format("ProgressThread: the system cannot create a thread: {}; go without one", error.what()));
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
