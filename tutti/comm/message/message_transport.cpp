#include "tutti/comm/message/message_transport.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tutti/comm/exchange_check.h"
#include "tutti/core/error.h"
#include "tutti/runtime/host.h"

namespace tutti::comm {
namespace {

// A yield is a microsecond and lets the engine's own thread run; going to sleep and waking up is twenty or more.
constexpr uint32_t kYields = 100;
// A sleeper looks after its peers this often.
constexpr std::chrono::microseconds kLongestNap{50'000};
// A process may end as soon as a call has returned, or has told others why it fails: what it has said goes out before.
constexpr std::chrono::milliseconds kLastWords{100};

}  // namespace

MessageTransport::MessageTransport(std::unique_ptr<MessageEngine> engine, std::string group,
                                   std::vector<PeerIdentity> identities)
    : engine_(std::move(engine)),
      group_(std::move(group)),
      traits_{.name = engine_->name(),
              .devices = {DeviceKind::cpu},
              .waits_for_network = true,
              .one_round_bytes = inline_bytes(engine_->size())},
      line_(*engine_),
      round_(line_, group_),
      mail_(line_),
      known_(static_cast<size_t>(engine_->size())) {
  TUTTI_ASSERT(identities.empty() || identities.size() == known_.size(), "{} identities of {} ranks", identities.size(),
               known_.size());
  for (size_t p = 0; p < identities.size(); ++p) known_[p].identity = std::move(identities[p]);
  PeerIdentity& own = known_[static_cast<size_t>(rank())].identity;
  own.pid = getpid();
  own.host = host_name();
}

MessageTransport::~MessageTransport() {
  for (int p = 0; p < size(); ++p) {
    if (p != rank()) line_.send(p, {.kind = PacketKind::leave});
  }
}

// ---- rounds and messages --------------------------------------------------------------------------------------------

void MessageTransport::start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver) {
  const std::lock_guard lock(turn_);
  read_packets();
  throw_if_failed();
  round_.start(call, step, exchange, receiver);
}

bool MessageTransport::advance() {
  const std::lock_guard lock(turn_);
  if (round_.is_idle()) return true;
  try {
    read_packets();
    // What has come is enough or not, whatever happened after it was sent.
    if (round_.advance()) {
      engine_->flush(kLastWords);  // has long been done where this rank has waited for others
      return true;
    }
    throw_if_failed(true);
    return false;
  } catch (const UsageError& error) {
    // Seen by two ranks only: the others must not wait for them.
    if (round_.ended_between_two()) end(error.what(), round_.number(), true);
    throw;
  }
}

void MessageTransport::post(Message& message) {
  const std::lock_guard lock(turn_);
  check_message(message, rank(), size());
  read_packets();
  throw_if_failed();
  mail_.post(message);
  if (message.is_send) engine_->flush(kLastWords);
}

void MessageTransport::advance_messages() {
  const std::lock_guard lock(turn_);
  read_packets();
  throw_if_failed();
}

void MessageTransport::cancel(Message& message) {
  const std::lock_guard lock(turn_);
  mail_.cancel(message);
}

void MessageTransport::take_refusals(std::vector<Refusal>& into) {
  const std::lock_guard lock(turn_);
  mail_.take_refusals(into);
}

// ---- packets --------------------------------------------------------------------------------------------------------

void MessageTransport::read_packets() {
  try {
    for (Packet packet; engine_->take(packet);) read(std::move(packet));
  } catch (const EnvironmentError& error) {
    end(error.what(), 0, true);
  }
}

void MessageTransport::read(Packet&& packet) {
  TUTTI_ASSERT(packet.from >= 0 && packet.from < size() && packet.from != rank(), "packet from {}", packet.from);
  const int from = packet.from;
  if (packet.bytes < static_cast<int64_t>(sizeof(PacketHead))) throw_bad_packet(from, "a packet that is cut off");
  const PacketHead head = *reinterpret_cast<const PacketHead*>(packet.data());
  const std::string_view body(reinterpret_cast<const char*>(packet.data()) + sizeof head,
                              static_cast<size_t>(packet.bytes) - sizeof head);
  Known& known = known_[static_cast<size_t>(from)];
  switch (head.kind) {
    case PacketKind::hello:
      if (head.number != kWireVersion)
        throw_bad_packet(from, fmt::format("greetings of version {:#x}; expected {:#x}", head.number, kWireVersion));
      known.identity.pid = static_cast<pid_t>(head.tag);
      known.identity.host = std::string(body);
      break;
    case PacketKind::round:
    case PacketKind::data:
    case PacketKind::grant:
      return round_.arrived(head, std::move(packet));
    case PacketKind::mail:
    case PacketKind::mail_grant:
    case PacketKind::mail_skip:
    case PacketKind::mail_data:
    case PacketKind::mail_withdrawn:
    case PacketKind::mail_refused:
    case PacketKind::mail_read:
      return mail_.arrived(head, std::move(packet));
    case PacketKind::fail:
      end(body, head.number, false);
      break;
    case PacketKind::leave:
      known.has_left = true;
      break;
    default:
      throw_bad_packet(from, fmt::format("a packet of kind {}", static_cast<uint32_t>(head.kind)));
  }
  line_.recycle(std::move(packet));
}

// ---- waiting --------------------------------------------------------------------------------------------------------

bool MessageTransport::pause(uint32_t attempt, std::chrono::microseconds limit) {
  if (attempt < kYields) {
    sched_yield();
    return true;
  }
  const std::lock_guard lock(turn_);
  engine_->wait(std::min(limit, kLongestNap));
  look_after_peers();
  return true;
}

void MessageTransport::look_after_peers() {
  const auto has_left = [&](int p) { return p == rank() || known_[static_cast<size_t>(p)].has_left; };
  const auto why_gone = [&](int p) { return has_left(p) ? "left the group" : engine_->lost(p); };
  std::vector<int> waited_for = round_.is_idle() ? mail_.waited_for() : round_.waited_for();
  if (std::find(waited_for.begin(), waited_for.end(), -1) != waited_for.end()) {
    // A message from anybody may still come when some have left in good order, but a crash may have lost it.
    bool all_left = true;
    for (int p = 0; p < size(); ++p) all_left &= has_left(p);
    for (int p = 0; p < size(); ++p) {
      if (all_left || !has_left(p)) waited_for.push_back(p);
    }
  }
  for (const int p : waited_for) {
    if (p < 0 || p == rank() || why_gone(p).empty()) continue;
    // It may have done its part before it went: what it sent is read first, and then asked again.
    Packet packet;
    if (engine_->take(packet)) {
      try {
        read(std::move(packet));
        read_packets();
      } catch (const EnvironmentError& error) {
        end(error.what(), 0, true);
      }
      return;
    }
    const std::string what = round_.is_idle() ? mail_.name_of_wait(p) : round_.name();
    end(fmt::format("{}: {} while rank {} waited for it in {} of group '{}'",
                    describe(p, known_[static_cast<size_t>(p)].identity), why_gone(p), rank(), what, group_),
        0, true);
    return;
  }
}

void MessageTransport::look_after(int peer, const CallRecord& call) {
  const std::lock_guard lock(turn_);
  const Known& known = known_[static_cast<size_t>(peer)];
  if (known.has_left) return;
  const std::string why = engine_->lost(peer);
  if (why.empty()) return;
  read_packets();  // it may have left in good order before
  if (known.has_left) return;
  end(fmt::format("{}: {} while rank {} was sending to it in {} #{} of group '{}'", describe(peer, known.identity), why,
                  rank(), name_of(call.kind), call.sequence, group_),
      0, true);
}

std::vector<int> MessageTransport::late_ranks() const {
  const std::lock_guard lock(turn_);
  return round_.waited_for();
}

PeerIdentity MessageTransport::peer(int rank) const {
  const std::lock_guard lock(turn_);
  return known_[static_cast<size_t>(rank)].identity;
}

std::string MessageTransport::last_seen(int rank) const {
  const std::lock_guard lock(turn_);
  const CallRecord* call = round_.last_call(rank);
  return call ? fmt::format("its last call was #{}, {}", call->sequence, describe(*call)) : "it has made no call yet";
}

// ---- failing --------------------------------------------------------------------------------------------------------

void MessageTransport::fail(std::string_view reason) { end(reason, 0, true); }

// Any thread.
void MessageTransport::end(std::string_view reason, int64_t usage_round, bool tell_peers) {
  reason = reason.substr(0, static_cast<size_t>(kMaxReasonBytes));
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return;
    failure_ = {.reason = std::string(reason), .usage_round = usage_round};
  }
  if (!tell_peers) return;
  const PacketHead head{.kind = PacketKind::fail, .number = usage_round, .bytes = static_cast<int64_t>(reason.size())};
  for (int p = 0; p < size(); ++p) {
    if (p != rank()) line_.send_bare(p, head, {reinterpret_cast<const std::byte*>(reason.data()), head.bytes});
  }
  engine_->flush(kLastWords);
}

std::string MessageTransport::failure() const {
  // Whoever is not in a call learns of the others' failure by asking.
  if (const std::unique_lock lock(turn_, std::try_to_lock); lock.owns_lock())
    const_cast<MessageTransport*>(this)->read_packets();
  const std::lock_guard lock(failure_mutex_);
  return failure_ ? failure_->reason : "";
}

// Whoever has the turn. Wrong usage is reported as such to those who were in that call, then as any failure.
void MessageTransport::throw_if_failed(bool in_a_round) {
  std::optional<Failure> failure;
  {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) return;
    failure = failure_;
  }
  mail_.end_all(failure->reason);
  const bool by_usage = !round_.is_idle() && failure->usage_round == round_.number();
  round_.drop();
  if (by_usage) throw UsageError(failure->reason);
  if (in_a_round) throw_ended(failure->reason);
  throw PeerError(failure->reason);
}

}  // namespace tutti::comm
