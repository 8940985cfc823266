#include "tutti/comm/call_states.h"

namespace tutti::comm {
namespace {

std::vector<Tensor> received_by(std::span<const PointToPoint> operations) {
  std::vector<Tensor> received;
  for (const PointToPoint& operation : operations) {
    if (operation.kind == PointToPoint::Kind::irecv) received.push_back(operation.tensor);
  }
  return received;
}

}  // namespace

bool CallState::advance() {
  Released released;
  if (!call_.has_ended()) queue_->try_advance(released);
  return call_.has_ended();
}

CollectiveState::CollectiveState(std::shared_ptr<CallQueue> queue, std::unique_ptr<Collective> collective,
                                 std::chrono::milliseconds timeout, std::vector<Tensor> results)
    : Call(timeout), CallState(std::move(queue), *this, std::move(results)), owned_(std::move(collective)) {
  this->collective = owned_.get();
}

MessageState::MessageState(std::shared_ptr<CallQueue> queue, std::span<const PointToPoint> operations,
                           const CallRecord& call, std::chrono::milliseconds timeout)
    : MessageCall(timeout), CallState(std::move(queue), *this, received_by(operations)) {
  record = call;
  messages.reserve(operations.size());
  for (const PointToPoint& operation : operations) {
    Message& message = messages.emplace_back();
    message.is_send = operation.kind == PointToPoint::Kind::isend;
    message.peer = operation.peer;
    message.tag = operation.tag;
    message.dtype = operation.tensor.dtype();
    message.call = &record;
    if (message.is_send) {
      inputs_.emplace_back(operation.tensor);
      message.data = const_cast<std::byte*>(inputs_.back().data());
      message.bytes = inputs_.back().bytes();
    } else {
      outputs_.emplace_back(operation.tensor);
      message.data = outputs_.back().data();
      message.bytes = outputs_.back().bytes();
    }
  }
  finish = [this] {
    for (DenseOutput& output : outputs_) output.finish();
  };
}

int MessageState::source_rank() const {
  for (const Message& message : messages) {
    if (!message.is_send) return message.peer;
  }
  return -1;
}

}  // namespace tutti::comm
