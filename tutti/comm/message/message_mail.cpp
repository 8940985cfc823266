#include "tutti/comm/message/message_mail.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "tutti/comm/exchange_check.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

// What a rank may send in small messages that are not read: then messages wait for their receive to be posted.
constexpr int64_t kUnreadBytes = 256 << 10;

int64_t cost_of(int64_t bytes) { return bytes + static_cast<int64_t>(sizeof(PacketHead)); }

bool fits(const Message& receiver, int from, uint32_t tag) {
  return receiver.tag == tag && (receiver.peer == -1 || receiver.peer == from);
}

}  // namespace

MessageMail::MessageMail(PacketLine& line)
    : line_(line),
      chunk_(chunk_bytes(line.size())),
      inline_(inline_bytes(line.size())),
      small_(static_cast<size_t>(line.size())) {}

void MessageMail::post(Message& message) {
  message.finished = false;
  message.error.clear();
  message.done_bytes = 0;
  message.handle = 0;
  if (!message.is_send) {
    const auto envelope =
        std::find_if(aside_.begin(), aside_.end(), [&](const Envelope& e) { return fits(message, e.from, e.tag); });
    if (envelope == aside_.end()) {
      receivers_.push_back(&message);
    } else {
      take_envelope(message, *envelope, envelope->data.data());
      aside_.erase(envelope);
    }
    return;
  }
  const int64_t id = next_id_++;
  Small& small = small_[static_cast<size_t>(message.peer)];
  if (message.bytes <= inline_ && small.sent - small.known + cost_of(message.bytes) <= kUnreadBytes) {
    small.sent += cost_of(message.bytes);
    line_.send(message.peer,
               {.kind = PacketKind::mail,
                .tag = message.tag,
                .number = id,
                .offset = 1,
                .bytes = message.bytes,
                .dtype = message.dtype,
                .call = number_of_call(message)},
               {{message.data, message.bytes}});
    message.done_bytes = message.bytes;
    message.finished = true;
    return;
  }
  message.handle = static_cast<uint64_t>(id);
  sending_.emplace(id, Sending{&message, 0});
  line_.send(message.peer, {.kind = PacketKind::mail,
                            .tag = message.tag,
                            .number = id,
                            .bytes = message.bytes,
                            .dtype = message.dtype,
                            .call = number_of_call(message)});
}

void MessageMail::cancel(Message& message) {
  receivers_.remove(&message);
  for (auto it = receiving_.begin(); it != receiving_.end(); ++it) {
    if (it->second.message != &message) continue;
    line_.send(it->first.first, {.kind = PacketKind::mail_skip, .number = it->first.second});
    stop_receiving(it);
    return;
  }
  if (const auto it = sending_.find(static_cast<int64_t>(message.handle));
      it != sending_.end() && it->second.message == &message) {
    line_.send(message.peer, {.kind = PacketKind::mail_withdrawn, .number = it->first});
    sending_.erase(it);
  }
}

void MessageMail::arrived(const PacketHead& head, Packet&& packet) {
  const int from = packet.from;
  switch (head.kind) {
    case PacketKind::mail:
      envelope_came(from, head, packet);
      break;
    case PacketKind::mail_data:
      data_came(from, head, packet);
      break;
    case PacketKind::mail_withdrawn:
      withdrawn(from, head.number);
      break;
    case PacketKind::mail_refused:
      was_refused(from, head,
                  std::string(reinterpret_cast<const char*>(packet.data()) + sizeof head,
                              static_cast<size_t>(packet.bytes) - sizeof head));
      break;
    case PacketKind::mail_read: {
      Small& small = small_[static_cast<size_t>(from)];
      small.known = std::clamp(head.offset, small.known, small.sent);
      break;
    }
    default: {
      const auto it = sending_.find(head.number);
      // A grant may cross with the cancelling of the send.
      if (it == sending_.end() || it->second.message->peer != from) break;
      if (head.kind == PacketKind::mail_grant) {
        it->second.granted = std::max(it->second.granted, head.offset);
        send_on(it->first, it->second);
      } else {
        it->second.message->finished = true;
      }
      if (it->second.message->finished) sending_.erase(it);
    }
  }
  line_.recycle(std::move(packet));
}

// ---- sending --------------------------------------------------------------------------------------------------------

void MessageMail::send_on(int64_t id, Sending& sending) {
  Message& m = *sending.message;
  while (m.done_bytes < std::min(m.bytes, sending.granted)) {
    const int64_t part = std::min(chunk_, m.bytes - m.done_bytes);
    line_.send(m.peer, {.kind = PacketKind::mail_data, .number = id, .offset = m.done_bytes, .bytes = m.bytes},
               {{m.data + m.done_bytes, part}});
    m.done_bytes += part;
  }
  m.finished = m.done_bytes == m.bytes;
}

// The message itself ends with the text when it is still under way; the caller is told in any case.
void MessageMail::was_refused(int by, const PacketHead& head, std::string text) {
  if (const auto it = sending_.find(head.number); it != sending_.end() && it->second.message->peer == by) {
    it->second.message->error = text;
    it->second.message->finished = true;
    sending_.erase(it);
  }
  refusals_.push_back({.peer = by, .tag = head.tag, .call = head.call, .text = std::move(text)});
}

void MessageMail::take_refusals(std::vector<Refusal>& into) {
  into.insert(into.end(), std::make_move_iterator(refusals_.begin()), std::make_move_iterator(refusals_.end()));
  refusals_.clear();
}

// ---- receiving ------------------------------------------------------------------------------------------------------

void MessageMail::envelope_came(int from, const PacketHead& head, const Packet& packet) {
  const int64_t body = packet.bytes - static_cast<int64_t>(sizeof(PacketHead));
  const bool has_data = head.offset == 1;
  if (head.bytes < 0 || body != (has_data ? head.bytes : 0) || static_cast<int>(head.dtype) >= kNumDTypes) {
    throw_bad_packet(from, fmt::format("{} bytes of a message of {}", body, head.bytes));
  }
  const std::byte* data = packet.data() + sizeof(PacketHead);
  Envelope envelope{from, head.tag, head.number, head.call, head.dtype, head.bytes, has_data, {}};
  const auto receiver =
      std::find_if(receivers_.begin(), receivers_.end(), [&](Message* m) { return fits(*m, from, head.tag); });
  if (receiver == receivers_.end()) {
    envelope.data.assign(data, data + body);
    aside_.push_back(std::move(envelope));
    return;
  }
  Message& message = **receiver;
  receivers_.erase(receiver);
  take_envelope(message, envelope, data);
}

void MessageMail::take_envelope(Message& message, const Envelope& envelope, const std::byte* data) {
  message.peer = envelope.from;
  if (envelope.has_data) has_read(envelope.from, cost_of(envelope.bytes));
  message.error = why_refused(message, envelope.from, line_.rank(), envelope.dtype, envelope.bytes, envelope.call);
  if (!message.error.empty()) {
    message.finished = true;
    const int64_t length = static_cast<int64_t>(message.error.size());
    line_.send(envelope.from,
               {.kind = PacketKind::mail_refused,
                .tag = envelope.tag,
                .number = envelope.id,
                .bytes = length,
                .call = envelope.call},
               {{reinterpret_cast<const std::byte*>(message.error.data()), length}});
  } else if (envelope.has_data) {
    if (envelope.bytes > 0) std::memcpy(message.data, data, static_cast<size_t>(envelope.bytes));
    message.done_bytes = envelope.bytes;
    message.finished = true;
  } else if (envelope.bytes == 0) {
    line_.send(envelope.from, {.kind = PacketKind::mail_skip, .number = envelope.id});
    message.finished = true;
  } else {
    grant(receiving_.emplace(std::pair{envelope.from, envelope.id}, Receiving{&message, 0}).first);
  }
}

void MessageMail::grant(Receivings::iterator it) {
  const auto [from, id] = it->first;
  Receiving& receiving = it->second;
  const Message& m = *receiving.message;
  const int64_t grant = std::min(m.bytes, m.done_bytes + kWindowChunks * chunk_);
  if (receiving.told == m.bytes || (grant - receiving.told < 2 * chunk_ && grant < m.bytes)) return;
  if (granted_ >= kWindowBytes) {
    hungry_.push_back(it->first);
    return;
  }
  granted_ += grant - receiving.told;
  receiving.told = grant;
  line_.send(from, {.kind = PacketKind::mail_grant, .number = id, .offset = grant});
}

void MessageMail::stop_receiving(Receivings::iterator it) {
  granted_ -= it->second.told - it->second.message->done_bytes;
  receiving_.erase(it);
  feed_hungry();
}

void MessageMail::feed_hungry() {
  while (granted_ < kWindowBytes && !hungry_.empty()) {
    const auto it = receiving_.find(hungry_.front());
    hungry_.pop_front();
    if (it != receiving_.end()) grant(it);
  }
}

void MessageMail::data_came(int from, const PacketHead& head, const Packet& packet) {
  const auto it = receiving_.find({from, head.number});
  if (it == receiving_.end()) return;  // the receive has been cancelled
  Message& m = *it->second.message;
  const int64_t bytes = packet.bytes - static_cast<int64_t>(sizeof(PacketHead));
  if (head.offset != m.done_bytes || bytes <= 0 || bytes > it->second.told - m.done_bytes) {
    throw_bad_packet(from, fmt::format("{} bytes at {} of a message of {}", bytes, head.offset, m.bytes));
  }
  std::memcpy(m.data + m.done_bytes, packet.data() + sizeof(PacketHead), static_cast<size_t>(bytes));
  m.done_bytes += bytes;
  granted_ -= bytes;
  m.finished = m.done_bytes == m.bytes;
  if (!m.finished) grant(it);
  if (m.finished) stop_receiving(it);
  else feed_hungry();
}

void MessageMail::withdrawn(int from, int64_t id) {
  aside_.remove_if([&](const Envelope& e) { return e.from == from && e.id == id; });
  const auto it = receiving_.find({from, id});
  if (it == receiving_.end()) return;
  Message& m = *it->second.message;
  m.error = withdrawn_text(m, from, m.done_bytes);
  m.finished = true;
  stop_receiving(it);
}

void MessageMail::has_read(int from, int64_t bytes) {
  Small& small = small_[static_cast<size_t>(from)];
  small.read += bytes;
  if (small.read - small.told < kUnreadBytes / 2) return;
  small.told = small.read;
  line_.send(from, {.kind = PacketKind::mail_read, .offset = small.read});
}

// ---- waiting --------------------------------------------------------------------------------------------------------

void MessageMail::end_all(const std::string& error) {
  const auto end = [&](Message& m) {
    m.error = error;
    m.finished = true;
  };
  for (Message* m : receivers_) end(*m);
  for (auto& [key, receiving] : receiving_) end(*receiving.message);
  for (auto& [id, sending] : sending_) end(*sending.message);
  receivers_.clear();
  receiving_.clear();
  hungry_.clear();
  sending_.clear();
}

std::string MessageMail::name_of_wait(int peer) const {
  const auto text = [](const Message& m) {
    return m.call == nullptr ? std::string("a message")
                             : fmt::format("{} #{}", name_of(m.call->kind), m.call->sequence);
  };
  for (const auto& [key, receiving] : receiving_) {
    if (key.first == peer) return text(*receiving.message);
  }
  for (const auto& [id, sending] : sending_) {
    if (sending.message->peer == peer) return text(*sending.message);
  }
  for (const Message* m : receivers_) {
    if (m->peer == peer || m->peer < 0) return text(*m);
  }
  return "a message";
}

std::vector<int> MessageMail::waited_for() const {
  std::vector<int> ranks;
  for (const Message* m : receivers_) ranks.push_back(m->peer);
  for (const auto& [key, receiving] : receiving_) ranks.push_back(key.first);
  for (const auto& [id, sending] : sending_) ranks.push_back(sending.message->peer);
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace tutti::comm
