#include "tutti/devices/mock/mock_stream.h"

#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "tutti/core/error.h"

namespace tutti {

// Work is numbered from 1 in the order given.
struct MockStream::Queue {
  std::recursive_mutex running;  // held while work runs: it runs in order, whoever runs it
  std::mutex mutex;              // guards the rest
  std::deque<std::function<void()>> work;
  int64_t given = 0;
  std::atomic<int64_t> done{0};
  std::vector<std::pair<int64_t, std::exception_ptr>> failures;

  bool run_next() {
    std::lock_guard order(running);
    std::function<void()> next;
    {
      std::lock_guard lock(mutex);
      if (work.empty()) return false;
      next = std::move(work.front());
      work.pop_front();
    }
    std::exception_ptr failure;
    try {
      next();
    } catch (...) {
      failure = std::current_exception();
    }
    next = nullptr;  // what it kept alive ends before it counts as done
    std::lock_guard lock(mutex);
    if (failure) failures.emplace_back(done + 1, failure);
    done.fetch_add(1, std::memory_order_release);
    return true;
  }

  // Returns when work `number` is done; throws the first failure up to it and forgets the others.
  void run_to(int64_t number) {
    while (done.load(std::memory_order_acquire) < number) {
      // With nothing left to run and `running` ours, the missing piece is the one that called us.
      TUTTI_CHECK(run_next() || done.load(std::memory_order_acquire) >= number,
                  "mock stream: its work waits for itself");
    }
    std::exception_ptr failure;
    {
      std::lock_guard lock(mutex);
      if (!failures.empty() && failures.front().first <= number) {
        failure = failures.front().second;
        std::erase_if(failures, [number](const auto& f) { return f.first <= number; });
      }
    }
    if (failure) std::rethrow_exception(failure);
  }
};

namespace {

class MockEvent : public Event {
 public:
  MockEvent(std::shared_ptr<MockStream::Queue> queue, int64_t number) : queue_(std::move(queue)), number_(number) {}
  bool is_done() const override { return queue_->done.load(std::memory_order_acquire) >= number_; }
  void wait() const override { queue_->run_to(number_); }

 private:
  std::shared_ptr<MockStream::Queue> queue_;
  int64_t number_;
};

}  // namespace

MockStream::MockStream(int index)
    : Stream({DeviceKind::mock, static_cast<int16_t>(index)}), queue_(std::make_shared<Queue>()) {}

MockStream::~MockStream() {
  while (queue_->run_next()) {
  }
}

void MockStream::submit(std::function<void()> work) {
  std::lock_guard lock(queue_->mutex);
  queue_->work.push_back(std::move(work));
  ++queue_->given;
}

std::shared_ptr<Event> MockStream::record() {
  std::lock_guard lock(queue_->mutex);
  return std::make_shared<MockEvent>(queue_, queue_->given);
}

void MockStream::wait_for(std::shared_ptr<const Event> event) {
  submit([event = std::move(event)] { event->wait(); });
}

void MockStream::synchronize() {
  int64_t given;
  {
    std::lock_guard lock(queue_->mutex);
    given = queue_->given;
  }
  queue_->run_to(given);
}

int64_t MockStream::pending() const {
  std::lock_guard lock(queue_->mutex);
  return queue_->given - queue_->done.load(std::memory_order_relaxed);
}

bool MockStream::run_next() { return queue_->run_next(); }

}  // namespace tutti
