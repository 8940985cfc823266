#include "tutti/comm/shm/shm_mail.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

// A byte range of a ring is one or two pieces.
void copy_in(Pipe& pipe, uint64_t at, const std::byte* from, int64_t bytes) {
  const int64_t start = static_cast<int64_t>(at % kPipeBytes), first = std::min(bytes, kPipeBytes - start);
  std::memcpy(pipe.data + start, from, static_cast<size_t>(first));
  std::memcpy(pipe.data, from + first, static_cast<size_t>(bytes - first));
}

void copy_out(const Pipe& pipe, uint64_t at, std::byte* to, int64_t bytes) {
  const int64_t start = static_cast<int64_t>(at % kPipeBytes), first = std::min(bytes, kPipeBytes - start);
  std::memcpy(to, pipe.data + start, static_cast<size_t>(first));
  std::memcpy(to + first, pipe.data, static_cast<size_t>(bytes - first));
}

int64_t room_in(const Pipe& pipe) {
  return kPipeBytes - static_cast<int64_t>(pipe.written.load(std::memory_order_relaxed) - pipe.read.load(std::memory_order_acquire));
}

int64_t bytes_in(const Pipe& pipe) {
  return static_cast<int64_t>(pipe.written.load(std::memory_order_acquire) - pipe.read.load(std::memory_order_relaxed));
}

}  // namespace

ShmMail::ShmMail(std::shared_ptr<Segment> segment, int rank)
    : segment_(std::move(segment)),
      rank_(rank),
      size_(segment_->world_size()),
      outgoing_(static_cast<size_t>(size_)),
      incoming_(static_cast<size_t>(size_)) {}

void ShmMail::post(Message& message) {
  TUTTI_ASSERT(message.peer >= (message.is_send ? 0 : -1) && message.peer < size_, "message with peer {}", message.peer);
  message.finished = false;
  message.error.clear();
  message.done_bytes = 0;
  ++posted_;
  if (message.is_send) outgoing_[static_cast<size_t>(message.peer)].queue.push_back(&message);
  else if (!deliver_aside(message)) receivers_.push_back(&message);
}

void ShmMail::finish(Message& message) {
  message.finished = true;
  --posted_;
}

void ShmMail::refuse(Message& message, int from, int64_t sent) {
  message.error = fmt::format("receive of {} bytes from rank {} with tag {}: the sender's message has {} bytes",
                              message.bytes, from, message.tag, sent);
}

bool ShmMail::deliver_aside(Message& message) {
  for (auto it = aside_.begin(); it != aside_.end(); ++it) {
    if (it->frame.tag != message.tag || (message.peer >= 0 && message.peer != it->from)) continue;
    if (it->frame.bytes == message.bytes) std::copy(it->data.begin(), it->data.end(), message.data);
    else refuse(message, it->from, it->frame.bytes);
    message.peer = it->from;
    message.done_bytes = it->frame.bytes;
    aside_.erase(it);
    finish(message);
    return true;
  }
  return false;
}

bool ShmMail::advance() {
  bool moved = false;
  for (int p = 0; p < size_; ++p) {
    if (p == rank_) continue;
    moved |= write_to(p);
    moved |= read_from(p);
  }
  return moved;
}

bool ShmMail::has_news() const {
  for (int p = 0; p < size_; ++p) {
    if (has_news_of(p)) return true;
  }
  return false;
}

bool ShmMail::has_news_of(int peer) const {
  if (is_idle() || peer == rank_) return false;
  if (bytes_in(segment_->pipe(peer, rank_)) > 0) return true;
  const Outgoing& out = outgoing_[static_cast<size_t>(peer)];
  return (!out.queue.empty() || out.skip > 0) && room_in(segment_->pipe(rank_, peer)) >= static_cast<int64_t>(sizeof(Frame));
}

bool ShmMail::write_to(int peer) {
  Outgoing& out = outgoing_[static_cast<size_t>(peer)];
  Pipe& pipe = segment_->pipe(rank_, peer);
  bool moved = false;
  while (!out.queue.empty() || out.skip > 0) {
    const int64_t room = room_in(pipe);
    uint64_t at = pipe.written.load(std::memory_order_relaxed);
    if (out.skip > 0) {
      const int64_t part = std::min(room, out.skip);
      if (part == 0) break;
      pipe.written.store(at + static_cast<uint64_t>(part), std::memory_order_release);
      out.skip -= part;
      moved = true;
      continue;
    }
    Message& message = *out.queue.front();
    if (!out.header_sent) {
      if (room < static_cast<int64_t>(sizeof(Frame))) break;
      const Frame frame{.tag = message.tag, .reserved = 0, .bytes = message.bytes};
      copy_in(pipe, at, reinterpret_cast<const std::byte*>(&frame), sizeof frame);
      pipe.written.store(at + sizeof frame, std::memory_order_release);
      out.header_sent = true;
    } else if (message.done_bytes < message.bytes) {
      const int64_t part = std::min(room, message.bytes - message.done_bytes);
      if (part == 0) break;
      copy_in(pipe, at, message.data + message.done_bytes, part);
      pipe.written.store(at + static_cast<uint64_t>(part), std::memory_order_release);
      message.done_bytes += part;
    }
    moved = true;
    if (out.header_sent && message.done_bytes == message.bytes) {
      out.queue.pop_front();
      out.header_sent = false;
      finish(message);
    }
  }
  return moved;
}

bool ShmMail::read_from(int peer) {
  Incoming& in = incoming_[static_cast<size_t>(peer)];
  Pipe& pipe = segment_->pipe(peer, rank_);
  bool moved = false;
  while (in.in_frame || begin_frame(peer)) {
    const int64_t left = in.frame.bytes - in.done;
    const int64_t part = std::min(left, bytes_in(pipe));
    if (left > 0 && part == 0) break;
    const uint64_t at = pipe.read.load(std::memory_order_relaxed);
    if (!in.discard) copy_out(pipe, at, (in.target ? in.target->data : in.aside.data()) + in.done, part);
    pipe.read.store(at + static_cast<uint64_t>(part), std::memory_order_release);
    in.done += part;
    moved = true;
    if (in.done == in.frame.bytes) end_frame(peer);
  }
  return moved;
}

bool ShmMail::begin_frame(int peer) {
  Incoming& in = incoming_[static_cast<size_t>(peer)];
  Pipe& pipe = segment_->pipe(peer, rank_);
  if (bytes_in(pipe) < static_cast<int64_t>(sizeof(Frame))) return false;
  const uint64_t at = pipe.read.load(std::memory_order_relaxed);
  copy_out(pipe, at, reinterpret_cast<std::byte*>(&in.frame), sizeof in.frame);
  pipe.read.store(at + sizeof in.frame, std::memory_order_release);
  in.in_frame = true;
  in.done = 0;
  in.discard = false;
  in.target = find_receiver(peer, in.frame.tag);
  if (in.target == nullptr) {
    in.aside.resize(static_cast<size_t>(in.frame.bytes));
  } else {
    receivers_.remove(in.target);
    in.target->peer = peer;
    if (in.target->bytes != in.frame.bytes) {
      refuse(*in.target, peer, in.frame.bytes);
      finish(*in.target);
      in.target = nullptr;
      in.discard = true;
    }
  }
  return true;
}

void ShmMail::end_frame(int peer) {
  Incoming& in = incoming_[static_cast<size_t>(peer)];
  in.in_frame = false;
  if (in.target != nullptr) {
    in.target->done_bytes = in.frame.bytes;
    finish(*std::exchange(in.target, nullptr));
  } else if (!in.discard) {
    // A receiver may have been posted while the frame came in; it took nothing yet, so it gets this one.
    aside_.push_back({.from = peer, .frame = in.frame, .data = std::move(in.aside)});
    in.aside = {};
    if (Message* waiting = find_receiver(peer, in.frame.tag)) {
      receivers_.remove(waiting);
      deliver_aside(*waiting);
    }
  }
}

Message* ShmMail::find_receiver(int from, uint32_t tag) {
  const auto it = std::find_if(receivers_.begin(), receivers_.end(), [&](const Message* m) {
    return m->tag == tag && (m->peer == from || m->peer < 0);
  });
  return it == receivers_.end() ? nullptr : *it;
}

void ShmMail::cancel(Message& message) {
  if (message.finished) return;
  finish(message);
  if (message.is_send) {
    Outgoing& out = outgoing_[static_cast<size_t>(message.peer)];
    if (!out.queue.empty() && out.queue.front() == &message && out.header_sent) {
      out.skip = message.bytes - message.done_bytes;
      out.header_sent = false;
    }
    std::erase(out.queue, &message);
    return;
  }
  receivers_.remove(&message);
  for (Incoming& in : incoming_) {
    if (in.target != &message) continue;
    in.target = nullptr;
    in.discard = true;
  }
}

std::vector<const Message*> ShmMail::waiting() const {
  std::vector<const Message*> messages(receivers_.begin(), receivers_.end());
  for (const Incoming& in : incoming_) {
    if (in.target != nullptr) messages.push_back(in.target);
  }
  for (const Outgoing& out : outgoing_) messages.insert(messages.end(), out.queue.begin(), out.queue.end());
  return messages;
}

}  // namespace tutti::comm
