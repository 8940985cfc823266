// pthread_cancel() ends a thread by an exception that nobody may catch for good, at any function of the system that
// waits: no interface in C could return a code, and no other rank would hear of it. So calls of such interfaces are
// ended by their deadlines only.
#pragma once

#include <pthread.h>

namespace tutti {

// While it lives, the thread is not cancelled; a request stays pending until then.
class CancellationOff {
 public:
  CancellationOff() noexcept { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~CancellationOff() { pthread_setcancelstate(before_, nullptr); }
  CancellationOff(const CancellationOff&) = delete;
  CancellationOff& operator=(const CancellationOff&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace tutti
