// Work: a collective or message under way.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/comm/errors.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm {

enum class WorkStatus : uint8_t { in_progress, completed, timed_out, failed };
std::string_view name_of(WorkStatus status);

// What a backend keeps about a call. May be asked from any thread.
class WorkState {
 public:
  virtual ~WorkState() = default;
  // Brings the call forward without blocking; true when it has ended, well or not.
  virtual bool advance() = 0;
  // Blocks until the call has ended or `limit` has passed; true when it has ended. Brings forward everything else that
  // this rank has under way meanwhile.
  virtual bool wait_for(std::chrono::milliseconds limit) = 0;
  virtual WorkStatus status() const = 0;
  virtual std::exception_ptr exception() const = 0;
  // Called once when the call has ended, by the thread that notices; at once when it already has.
  virtual void on_end(std::function<void()> callback) = 0;
  virtual std::vector<Tensor> result() const = 0;
  // Receives: the group rank the message came from; -1 otherwise.
  virtual int source_rank() const { return -1; }
};

// A handle, cheap to copy, usable from any thread. A default one stands for a call that has already succeeded: blocking
// calls return it. Inputs and outputs are kept alive by the call itself, so a handle may be dropped early.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  bool is_done() const { return !state_ || state_->advance(); }
  // Returns when the call has succeeded and throws what it failed with: PeerError, TimeoutError (its deadline passed),
  // UsageError (the ranks' calls do not fit together). Waiting twice is fine.
  void wait() const;
  // The same, but gives up after `limit`: false, and the call goes on.
  bool wait_for(std::chrono::milliseconds limit) const;
  WorkStatus status() const { return state_ ? state_->status() : WorkStatus::completed; }
  // What the call failed with; null while it runs and when it succeeded.
  std::exception_ptr exception() const { return state_ ? state_->exception() : nullptr; }
  // Runs `callback` once when the call has ended: inside whichever call of this rank notices the end, or now.
  void then(std::function<void()> callback) const;
  // The outputs; meaningful once done. Empty for a blocking call, whose outputs the caller has.
  std::vector<Tensor> result() const { return state_ ? state_->result() : std::vector<Tensor>(); }
  int source_rank() const { return state_ ? state_->source_rank() : -1; }

  const std::shared_ptr<WorkState>& state() const { return state_; }

 private:
  std::shared_ptr<WorkState> state_;
};

// One handle for several: done when all are; wait() throws the first failure after all have ended.
Work all_of(std::vector<Work> works);

}  // namespace tutti::comm
