#include "tutti/comm/gloo/connector.h"

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>

#include "tutti/core/error.h"

namespace tutti::comm {

GlooConnector::GlooConnector(gloo::transport::Context& context, std::vector<std::vector<char>> addresses)
    : context_(context), addresses_(std::move(addresses)), thread_([this] { run(); }) {}

GlooConnector::~GlooConnector() {
  int waited_for = 0;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    waited_for = peer_;
  }
  // The thread is inside connect() of this rank, or has not come to it yet; either way it returns.
  if (waited_for < context_.size && waited_for != context_.rank) context_.getPair(waited_for)->close();
  thread_.join();
}

void GlooConnector::run() {
  std::unique_lock lock(mutex_);
  for (; peer_ < context_.size && !stopping_; ++peer_) {
    const int p = peer_;
    if (p == context_.rank) continue;
    lock.unlock();
    std::string error;
    try {
      context_.getPair(p)->connect(addresses_[static_cast<size_t>(p)]);
    } catch (const std::exception& e) {
      error = e.what();
    }
    lock.lock();
    if (error.empty()) continue;
    error_ = error;
    break;
  }
  news_.notify_all();
}

bool GlooConnector::wait_for(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const bool ended = news_.wait_for(lock, limit, [&] { return peer_ == context_.size || !error_.empty(); });
  TUTTI_CHECK_ENV(error_.empty(), "{}", error_);
  return ended;
}

int GlooConnector::peer() const {
  const std::lock_guard lock(mutex_);
  return peer_;
}

}  // namespace tutti::comm
