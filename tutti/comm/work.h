// Work: a handle on an asynchronous collective or message.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/job/errors.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm {

enum class WorkStatus : uint8_t { in_progress, completed, timed_out, failed };
std::string_view name_of(WorkStatus status);

// A backend's state of a call. May be used by any thread.
class WorkState {
 public:
  virtual ~WorkState() = default;
  // Progresses the call without blocking; true when it has ended, successfully or not.
  virtual bool advance() = 0;
  // Blocks until the call has ended or `limit` has passed; true when it has ended. Meanwhile it also progresses all
  // other outstanding calls of this rank.
  virtual bool wait_for(std::chrono::milliseconds limit) = 0;
  virtual WorkStatus status() const = 0;
  virtual std::exception_ptr exception() const = 0;
  // `callback` is called once when the call has ended, by the thread that notices; immediately when it already has.
  virtual void on_end(std::function<void()> callback) = 0;
  virtual std::vector<Tensor> result() const = 0;
  // For receives, the group rank that the message came from; -1 otherwise.
  virtual int source_rank() const { return -1; }
};

// A handle, cheap to copy and usable from any thread. A default-constructed one represents a call that has already
// succeeded; blocking calls return it. The call itself keeps inputs and outputs alive, so a handle may be dropped
// early.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  bool is_done() const { return !state_ || state_->advance(); }
  // Blocks until the call has ended, and throws its error if it failed: PeerError, TimeoutError (its deadline passed)
  // or UsageError (the ranks' calls do not match). May be called repeatedly.
  void wait() const;
  // The same, but returns false after `limit`, in which case the call continues.
  bool wait_for(std::chrono::milliseconds limit) const;
  WorkStatus status() const { return state_ ? state_->status() : WorkStatus::completed; }
  // The error of the call; null while it runs and when it succeeded.
  std::exception_ptr exception() const { return state_ ? state_->exception() : nullptr; }
  // Runs `callback` once when the call has ended, inside whichever call or op of this rank notices that, or on its
  // ProgressThread; immediately if it already has. What it throws comes out of that call, or where an op or the thread
  // noticed, out of the group's next one.
  void then(std::function<void()> callback) const;
  // The outputs, valid once the call is done. Empty for a blocking call, whose outputs the caller has.
  std::vector<Tensor> result() const { return state_ ? state_->result() : std::vector<Tensor>(); }
  int source_rank() const { return state_ ? state_->source_rank() : -1; }

  const std::shared_ptr<WorkState>& state() const { return state_; }

 private:
  std::shared_ptr<WorkState> state_;
};

// One handle for several calls. It is done when all are; wait() throws the first error after all have ended.
Work all_of(std::vector<Work> works);

}  // namespace tutti::comm
