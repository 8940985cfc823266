#include "tutti/generate/serve/worker_pool.h"

#include <system_error>

namespace tutti::generate::serve {
namespace {

thread_local bool serves_one_too_many = false;

}  // namespace

bool WorkerPool::is_spare() { return serves_one_too_many; }

bool WorkerPool::add(const std::function<void()>& task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(task);
  const bool needs_thread = idle_ < static_cast<int64_t>(tasks_.size());
  if (needs_thread && static_cast<int64_t>(threads_.size()) < connections_ + kSpare) {
    try {
      threads_.push_back(start_([this] { work(); }));
    } catch (const std::system_error&) {  // others may end, so that one can be started for the next task
      if (threads_.empty()) {
        tasks_.pop_back();
        return false;
      }
    }
  }
  changed_.notify_one();
  return true;
}

void WorkerPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    ++idle_;
    changed_.wait(lock, [&] { return !tasks_.empty() || is_ending_; });
    --idle_;
    if (tasks_.empty()) return;
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    // Those that are told so do not count: else they would keep others out while they are.
    serves_one_too_many = served_ == connections_;
    served_ += serves_one_too_many ? 0 : 1;
    lock.unlock();
    task();
    lock.lock();
    served_ -= serves_one_too_many ? 0 : 1;
  }
}

void WorkerPool::join() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace tutti::generate::serve
