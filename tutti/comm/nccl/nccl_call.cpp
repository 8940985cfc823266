#include "tutti/comm/nccl/nccl_call.h"

#include <algorithm>
#include <thread>

#include "tutti/job/deadline.h"

namespace tutti::comm {

NcclCall::NcclCall(std::shared_ptr<NcclCommunicator> owner, CallRecord record, GpuApi::Event event,
                   std::vector<Tensor> tensors, size_t first_output, Clock::time_point deadline,
                   std::chrono::milliseconds timeout, uint64_t recorded)
    : owner_(std::move(owner)),
      record_(record),
      event_(event),
      first_output_(first_output),
      deadline_(deadline),
      timeout_(timeout),
      recorded_(recorded),
      tensors_(std::move(tensors)) {}

NcclCall::~NcclCall() {
  // The device may still read and write the tensors of a call that nobody waited for.
  try {
    while (!wait_for(std::chrono::seconds(1))) {
    }
  } catch (...) {  // callbacks; there is nobody to tell
  }
  owner_->gpu().event_destroy(event_);
}

bool NcclCall::advance() {
  if (status() != WorkStatus::in_progress) return true;
  try {
    if (owner_->query(event_, record_) == NcclCommunicator::Stage::done) {
      end(WorkStatus::completed, nullptr);
    } else if (Clock::now() > deadline_) {
      owner_->time_out(owner_->describe_call(record_), timeout_);
    } else {
      return false;
    }
  } catch (const TimeoutError&) {
    end(WorkStatus::timed_out, std::current_exception());
  } catch (const Error&) {
    end(WorkStatus::failed, std::current_exception());
  }
  return true;
}

bool NcclCall::wait_for(std::chrono::milliseconds limit) {
  const auto until = deadline_after(limit);
  std::chrono::microseconds pause{5};
  while (!advance()) {
    if (Clock::now() >= until) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(1000));
  }
  return true;
}

void NcclCall::end(WorkStatus status, std::exception_ptr failure) {
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard lock(mutex_);
    if (status_.load() != WorkStatus::in_progress) return;  // another thread saw it first
    failure_ = std::move(failure);
    tensors_.erase(tensors_.begin(), tensors_.begin() + static_cast<std::ptrdiff_t>(first_output_));
    callbacks.swap(callbacks_);
    if (FlightRecorder* recorder = owner_->options().recorder) {
      recorder->ended(recorded_, status == WorkStatus::completed ? FlightState::completed : FlightState::failed);
    }
    status_.store(status, std::memory_order_release);
  }
  for (const auto& callback : callbacks) callback();
}

std::exception_ptr NcclCall::exception() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void NcclCall::on_end(std::function<void()> callback) {
  {
    std::lock_guard lock(mutex_);
    if (status_.load() == WorkStatus::in_progress) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

std::vector<Tensor> NcclCall::result() const {
  std::lock_guard lock(mutex_);
  const size_t first = status() == WorkStatus::in_progress ? first_output_ : 0;
  return {tensors_.begin() + static_cast<std::ptrdiff_t>(first), tensors_.end()};
}

}  // namespace tutti::comm
