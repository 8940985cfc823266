// Keeps a signal that a failing write sends to the writing thread from ending the process: SIGPIPE, when the other end
// is gone, and SIGXFSZ, when a file would become larger than `ulimit -f` allows. A library must not change the
// program's handling of signals, so the writing thread blocks them.
#pragma once

#include <signal.h>

#include <cerrno>

namespace tutti {

// While one lives, such a write fails with EPIPE or EFBIG, and that is all. A thread that is started meanwhile holds
// the signal back for good.
class HeldSignal {
 public:
  explicit HeldSignal(int signal) : signal_(signal) {
    sigemptyset(&set_);
    sigaddset(&set_, signal_);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
    if (sigismember(&before_, signal_) == 1) return;
    sigset_t pending;
    sigpending(&pending);
    // A signal that somebody else sent to the process stays pending.
    takes_ = sigismember(&pending, signal_) == 0;
  }
  ~HeldSignal() {
    const int error = errno;  // that of the write
    const timespec at_once{};
    while (takes_ && sigtimedwait(&set_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  HeldSignal(const HeldSignal&) = delete;
  HeldSignal& operator=(const HeldSignal&) = delete;

 private:
  const int signal_;
  sigset_t set_;
  sigset_t before_;
  bool takes_ = false;
};

}  // namespace tutti
