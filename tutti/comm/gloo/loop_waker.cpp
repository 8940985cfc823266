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

LoopWaker::~LoopWaker() { device_->unregisterDescriptor(event_.get(), this); }

void LoopWaker::wake() { eventfd_write(event_.get(), 1); }

void LoopWaker::handleEvents(int) {
  eventfd_t count = 0;
  eventfd_read(event_.get(), &count);
  work_();
}

}  // namespace tutti::comm
