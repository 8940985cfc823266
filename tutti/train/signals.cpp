#include "tutti/train/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>

namespace tutti::train {
namespace {

// The one thing a signal handler can reach.
std::atomic<int> seen{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int) {
  if (seen.fetch_add(1) > 0) _exit(kInterruptedStatus);
}

// How many objects live, and what was there before the first.
struct Handlers {
  std::mutex mutex;
  int users = 0;
  struct sigaction old_int{}, old_term{};
};

Handlers& handlers() {
  static Handlers the;
  return the;
}

}  // namespace

StopSignals::StopSignals() {
  Handlers& h = handlers();
  const std::lock_guard lock(h.mutex);
  if (h.users++ > 0) return;
  seen = 0;
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // a save in progress is not disturbed
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &h.old_int);
  sigaction(SIGTERM, &action, &h.old_term);
}

StopSignals::~StopSignals() {
  Handlers& h = handlers();
  const std::lock_guard lock(h.mutex);
  if (--h.users > 0) return;
  sigaction(SIGINT, &h.old_int, nullptr);
  sigaction(SIGTERM, &h.old_term, nullptr);
}

bool StopSignals::requested() const { return seen.load() > 0; }

}  // namespace tutti::train
