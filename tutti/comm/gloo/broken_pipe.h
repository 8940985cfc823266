// gloo writes to its connections without MSG_NOSIGNAL: when the peer is gone, the system sends the writing thread a
// SIGPIPE, which ends the process. A library must not change the program's handling of signals, so the threads in which gloo
// writes block the signal.
#pragma once

#include <signal.h>

#include <cerrno>

namespace tutti::comm {

// While one lives, writing to a closed connection is an error of this thread's write and no more. A thread that is started
// meanwhile holds the signal back for good.
class BrokenPipeHeld {
 public:
  BrokenPipeHeld() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
    if (sigismember(&before_, SIGPIPE) == 1) return;
    sigset_t pending;
    sigpending(&pending);
    // A signal that somebody else sent to the process stays pending.
    takes_ = sigismember(&pending, SIGPIPE) == 0;
  }
  ~BrokenPipeHeld() {
    const timespec at_once{};
    while (takes_ && sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  BrokenPipeHeld(const BrokenPipeHeld&) = delete;
  BrokenPipeHeld& operator=(const BrokenPipeHeld&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool takes_ = false;
};

}  // namespace tutti::comm
