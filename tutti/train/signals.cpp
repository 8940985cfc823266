#include "tutti/train/signals.h"

#include <unistd.h>

#include <atomic>

#include "tutti/core/error.h"

namespace tutti::train {
namespace {

// The one thing a signal handler can reach.
std::atomic<int> seen{0};
std::atomic<bool> installed{false};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int) {
  if (seen.fetch_add(1) > 0) _exit(kInterruptedStatus);
}

}  // namespace

StopSignals::StopSignals() {
  TUTTI_CHECK(!installed.exchange(true), "stop signals are handled already; keep one StopSignals per process");
  seen = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // a save in progress is not disturbed
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
  installed = false;
}

bool StopSignals::requested() const {
  return seen.load() > 0;
}

}  // namespace tutti::train
