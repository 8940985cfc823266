#include "tutti/comm/gloo/loop_waker.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

#include "tutti/core/error.h"

namespace tutti::comm {

LoopWaker::LoopWaker(std::shared_ptr<gloo::transport::tcp::Device> device, std::function<void()> work)
    : device_(std::move(device)), work_(std::move(work)), event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TUTTI_CHECK_ENV(event_, "no descriptor left: {}; raise 'ulimit -n'", detail::errno_text(errno));
  device_->registerDescriptor(event_.get(), EPOLLIN, this);
}

// The thread itself says that it is done: gloo waits for its next round on a condition alone, which may also come true
// without one. The last event is given and read under the lock, so that none comes behind it.
LoopWaker::~LoopWaker() {
  {
    std::unique_lock lock(mutex_);
    is_ending_ = true;
    wake();
    changed_.wait(lock, [&] { return has_ended_; });
  }
  device_->unregisterDescriptor(event_.get(), this);
}

void LoopWaker::wake() { eventfd_write(event_.get(), 1); }

void LoopWaker::handleEvents(int) {
  std::unique_lock lock(mutex_);
  const bool is_last = is_ending_;
  eventfd_t count = 0;
  eventfd_read(event_.get(), &count);
  lock.unlock();
  work_();
  if (!is_last) return;
  lock.lock();
  has_ended_ = true;
  changed_.notify_all();
}

}  // namespace tutti::comm
