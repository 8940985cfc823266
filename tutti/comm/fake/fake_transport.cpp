#include "tutti/comm/fake/fake_transport.h"

#include <unistd.h>

#include "tutti/comm/exchange_check.h"
#include "tutti/core/error.h"

namespace tutti::comm {

FakeTransport::FakeTransport(int rank, int size, std::string group)
    : rank_(rank), size_(size), group_(std::move(group)) {
  TUTTI_CHECK(rank >= 0 && rank < size, "group '{}': rank {} of {} ranks", group_, rank, size);
}

const TransportTraits& FakeTransport::traits() const {
  static const TransportTraits traits{.name = "fake", .devices = {DeviceKind::cpu}, .moves_data = false};
  return traits;
}

PeerIdentity FakeTransport::peer(int) const { return {getpid(), "a fake group"}; }

void FakeTransport::start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver) {
  throw_if_failed();
  TUTTI_ASSERT(exchange_ == nullptr, "a round starts while another is under way");
  check_exchange(call, exchange, rank_, size_);
  TUTTI_CHECK(call.root < size_, "{} #{}: root {} of a group of {}", name_of(call.kind), call.sequence, call.root,
              size_);
  CallCount& count = counts_[static_cast<size_t>(call.kind)];
  count.calls += step == 0;
  ++count.rounds;
  for (int p = 0; p < size_; ++p) {
    if (p == rank_) continue;
    count.sent_bytes += exchange.offer_to(p).bytes;
    count.received_bytes += exchange.take_from(p);
  }
  last_ = call;
  exchange_ = &exchange;
  receiver_ = &receiver;
}

bool FakeTransport::advance() {
  if (exchange_ == nullptr) return true;
  throw_if_failed();
  std::vector<Arrival> from(static_cast<size_t>(size_));
  const int64_t own = exchange_->take_from(rank_);  // a root that broadcasts takes nothing from itself
  if (own > 0) from[static_cast<size_t>(rank_)] = {exchange_->offer_to(rank_).data, own, 0};
  exchange_ = nullptr;
  receiver_->receive(from);
  return true;
}

void FakeTransport::post(Message& message) {
  throw_if_failed();
  check_message(message, rank_, size_);
  CallCount& count = counts_[static_cast<size_t>(message.is_send ? CollectiveKind::send : CollectiveKind::recv)];
  ++count.calls;
  ++count.rounds;
  (message.is_send ? count.sent_bytes : count.received_bytes) += message.bytes;
  if (message.peer < 0) message.peer = (rank_ + 1) % size_;
  message.error.clear();
  message.done_bytes = message.bytes;
  message.finished = true;
}

void FakeTransport::advance_messages() { throw_if_failed(); }

std::string FakeTransport::last_seen(int rank) const {
  if (rank != rank_) return "";
  return last_.sequence == 0 ? "it has made no call yet"
                             : fmt::format("its last call was #{}, {}", last_.sequence, describe(last_));
}

void FakeTransport::fail(std::string_view reason) {
  const std::lock_guard lock(failure_mutex_);
  if (failure_.empty()) failure_ = reason;
}

std::string FakeTransport::failure() const {
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

CallCount FakeTransport::total() const {
  CallCount sum;
  for (const CallCount& c : counts_) {
    sum.calls += c.calls;
    sum.rounds += c.rounds;
    sum.sent_bytes += c.sent_bytes;
    sum.received_bytes += c.received_bytes;
  }
  return sum;
}

void FakeTransport::throw_if_failed() const {
  const std::string reason = failure();
  if (!reason.empty()) throw PeerError(reason);
}

TUTTI_TRANSPORT(fake, [](const GroupSeat& seat) -> std::unique_ptr<Transport> {
  return std::make_unique<FakeTransport>(seat.rank, seat.size, seat.name);
});

}  // namespace tutti::comm
