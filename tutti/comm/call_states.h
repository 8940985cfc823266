// The WorkState of a call in a CallQueue: the call itself, with everything that it needs until it has ended.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tutti/comm/backend.h"
#include "tutti/comm/call_queue.h"
#include "tutti/comm/exchanges/dense.h"

namespace tutti::comm {

// The part that a Work uses. May be used by any thread.
class CallState : public WorkState {
 public:
  bool advance() override;
  bool wait_for(std::chrono::milliseconds limit) override { return call_.has_ended() || queue_->wait(call_, limit); }
  WorkStatus status() const override { return call_.status.load(std::memory_order_acquire); }
  std::exception_ptr exception() const override { return call_.has_ended() ? call_.failure : nullptr; }
  void on_end(std::function<void()> callback) override { queue_->on_end(call_, std::move(callback)); }
  std::vector<Tensor> result() const override { return results_; }

 protected:
  // `call` is another base of the same object.
  CallState(std::shared_ptr<CallQueue> queue, Pending& call, std::vector<Tensor> results)
      : queue_(std::move(queue)), call_(call), results_(std::move(results)) {}

 private:
  const std::shared_ptr<CallQueue> queue_;
  Pending& call_;
  const std::vector<Tensor> results_;
};

class CollectiveState final : public Call, public CallState {
 public:
  CollectiveState(std::shared_ptr<CallQueue> queue, std::unique_ptr<Collective> collective,
                  std::chrono::milliseconds timeout, std::vector<Tensor> results);

 private:
  const std::unique_ptr<Collective> owned_;
};

class MessageState final : public MessageCall, public CallState {
 public:
  MessageState(std::shared_ptr<CallQueue> queue, std::span<const PointToPoint> operations, const CallRecord& call,
               std::chrono::milliseconds timeout);
  int source_rank() const override;

 private:
  std::vector<DenseInput> inputs_;
  std::vector<DenseOutput> outputs_;
};

}  // namespace tutti::comm
