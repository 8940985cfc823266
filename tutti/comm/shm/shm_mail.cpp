#include "tutti/comm/shm/shm_mail.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "tutti/comm/exchange_check.h"
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
  return kPipeBytes -
         static_cast<int64_t>(pipe.written.load(std::memory_order_relaxed) - pipe.read.load(std::memory_order_acquire));
}

int64_t bytes_in(const Pipe& pipe) {
  return static_cast<int64_t>(pipe.written.load(std::memory_order_acquire) - pipe.read.load(std::memory_order_relaxed));
}

}  // namespace

ShmMail::ShmMail(std::shared_ptr<Segment> segment, int rank, std::vector<int> shown_ranks)
    : segment_(std::move(segment)),
      rank_(rank),
      size_(segment_->world_size()),
      shown_ranks_(std::move(shown_ranks)),
      outgoing_(static_cast<size_t>(size_)),
      incoming_(static_cast<size_t>(size_)) {}

void ShmMail::post(Message& message) {
  TUTTI_ASSERT(message.peer >= (message.is_send ? 0 : -1) && message.peer < size_, "message with peer {}",
               message.peer);
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

void ShmMail::fail(Message& message, const std::string& error) {
  message.error = error;
  finish(message);
}

bool ShmMail::advance() {
  bool moved = false;
  for (int p = 0; p < size_; ++p) {
    if (p == rank_) continue;
    moved |= read_refusals_of(p);
    moved |= write_to(p);
    moved |= read_from(p);
  }
  return std::exchange(has_refused_, false) || moved;
}

bool ShmMail::has_news() const {
  for (int p = 0; p < size_; ++p) {
    if (has_news_of(p)) return true;
  }
  return false;
}

bool ShmMail::has_news_of(int peer) const {
  if (is_idle() || peer == rank_) return false;
  const Pipe& in = segment_->pipe(peer, rank_);
  if (bytes_in(in) > 0 ||
      in.refusals_written.load(std::memory_order_acquire) != in.refusals_read.load(std::memory_order_relaxed))
    return true;
  if (in.is_withdrawn.load(std::memory_order_acquire) != 0 && incoming_[static_cast<size_t>(peer)].target != nullptr)
    return true;
  return !outgoing_[static_cast<size_t>(peer)].is_idle() &&
         room_in(segment_->pipe(rank_, peer)) >= static_cast<int64_t>(sizeof(Frame));
}

// ---- sending --------------------------------------------------------------------------------------------------------

bool ShmMail::write_to(int peer) {
  Outgoing& out = outgoing_[static_cast<size_t>(peer)];
  Pipe& pipe = segment_->pipe(rank_, peer);
  bool moved = false;
  while (!out.is_idle()) {
    const int64_t room = room_in(pipe);
    const uint64_t at = pipe.written.load(std::memory_order_relaxed);
    if (out.withdrawn) {
      const int64_t part = std::min(room, out.owed);
      pipe.written.store(at + static_cast<uint64_t>(part), std::memory_order_release);
      out.owed -= part;
      moved |= part > 0;
      if (out.owed > 0 || !write_end(peer, End::withdrawn)) break;
      out.withdrawn = false;
      pipe.is_withdrawn.store(0, std::memory_order_release);
    } else if (!out.header_sent) {
      if (room < static_cast<int64_t>(sizeof(Frame))) break;
      const Message& message = *out.queue.front();
      const Frame frame{.tag = message.tag,
                        .dtype = message.dtype,
                        .bytes = message.bytes,
                        .call = number_of_call(message),
                        .number = ++out.frames};
      copy_in(pipe, at, reinterpret_cast<const std::byte*>(&frame), sizeof frame);
      pipe.written.store(at + sizeof frame, std::memory_order_release);
      out.header_sent = true;
    } else if (Message& message = *out.queue.front(); message.done_bytes < message.bytes) {
      const int64_t part = std::min(room, message.bytes - message.done_bytes);
      if (part == 0) break;
      copy_in(pipe, at, message.data + message.done_bytes, part);
      pipe.written.store(at + static_cast<uint64_t>(part), std::memory_order_release);
      message.done_bytes += part;
    } else {
      if (!write_end(peer, End::whole)) break;
      out.queue.pop_front();
      out.header_sent = false;
      finish(message);
    }
    moved = true;
  }
  return moved;
}

bool ShmMail::write_end(int peer, End end) {
  Pipe& pipe = segment_->pipe(rank_, peer);
  if (room_in(pipe) < static_cast<int64_t>(sizeof end)) return false;
  const uint64_t at = pipe.written.load(std::memory_order_relaxed);
  copy_in(pipe, at, reinterpret_cast<const std::byte*>(&end), sizeof end);
  pipe.written.store(at + sizeof end, std::memory_order_release);
  return true;
}

void ShmMail::read_refusals() {
  for (int p = 0; p < size_; ++p) read_refusals_of(p);
}

bool ShmMail::read_refusals_of(int peer) {
  if (peer == rank_) return false;
  Pipe& pipe = segment_->pipe(peer, rank_);
  const uint64_t end = pipe.refusals_written.load(std::memory_order_acquire);
  uint64_t at = pipe.refusals_read.load(std::memory_order_relaxed);
  if (at == end) return false;
  for (; at != end; ++at) was_refused(peer, pipe.refusals[at % kKeptRefusals]);
  pipe.refusals_read.store(end, std::memory_order_release);
  if (const uint64_t lost = pipe.refusals_lost.exchange(0); lost > 0) {
    refusals_.push_back(
        {.peer = peer,
         .text =
             fmt::format("rank {} refuses {} further messages from rank {}, whose dtypes or lengths differ from those "
                         "it receives",
                         name_of(peer), lost, name_of(rank_))});
  }
  return true;
}

// The message itself ends with the text when it is still under way; the caller is told in any case.
void ShmMail::was_refused(int peer, const RefusedMessage& refused) {
  const Message receive{.tag = refused.tag, .bytes = refused.received_bytes, .dtype = refused.received};
  std::string text =
      why_refused(receive, name_of(rank_), name_of(peer), refused.sent, refused.sent_bytes, refused.call);
  Outgoing& out = outgoing_[static_cast<size_t>(peer)];
  if (refused.number == out.frames) {
    if (out.withdrawn) return;  // its call has ended with an error of its own
    if (out.header_sent) {
      Message& message = *out.queue.front();
      cancel(message);
      message.error = text;
    }
  }
  refusals_.push_back({.peer = peer, .tag = refused.tag, .call = refused.call, .text = std::move(text)});
}

void ShmMail::take_refusals(std::vector<Refusal>& into) {
  into.insert(into.end(), std::make_move_iterator(refusals_.begin()), std::make_move_iterator(refusals_.end()));
  refusals_.clear();
}

// ---- receiving ------------------------------------------------------------------------------------------------------

// True when it does: both ends are told.
bool ShmMail::refuse(Message& message, int from, const Frame& frame) {
  const std::string why = why_refused(message, name_of(from), name_of(rank_), frame.dtype, frame.bytes, frame.call);
  if (why.empty()) return false;
  fail(message, why);
  Pipe& back = segment_->pipe(rank_, from);
  const uint64_t written = back.refusals_written.load(std::memory_order_relaxed);
  if (written - back.refusals_read.load(std::memory_order_acquire) < kKeptRefusals) {
    back.refusals[written % kKeptRefusals] = {.number = frame.number,
                                              .call = frame.call,
                                              .sent_bytes = frame.bytes,
                                              .received_bytes = message.bytes,
                                              .tag = frame.tag,
                                              .sent = frame.dtype,
                                              .received = message.dtype};
    back.refusals_written.store(written + 1, std::memory_order_release);
  } else {
    back.refusals_lost.fetch_add(1);
  }
  has_refused_ = true;
  return true;
}

bool ShmMail::deliver_aside(Message& message) {
  for (auto it = aside_.begin(); it != aside_.end(); ++it) {
    if (it->frame.tag != message.tag || (message.peer >= 0 && message.peer != it->from)) continue;
    message.peer = it->from;
    if (!refuse(message, it->from, it->frame)) {
      std::copy(it->data.begin(), it->data.end(), message.data);
      message.done_bytes = it->frame.bytes;
      finish(message);
    }
    aside_.erase(it);
    return true;
  }
  return false;
}

bool ShmMail::read_from(int peer) {
  Incoming& in = incoming_[static_cast<size_t>(peer)];
  Pipe& pipe = segment_->pipe(peer, rank_);
  bool moved = false;
  while (in.in_frame || begin_frame(peer)) {
    const int64_t left = in.frame.bytes - in.done, there = bytes_in(pipe);
    const uint64_t at = pipe.read.load(std::memory_order_relaxed);
    if (left == 0) {
      End end;
      if (there < static_cast<int64_t>(sizeof end)) break;
      copy_out(pipe, at, reinterpret_cast<std::byte*>(&end), sizeof end);
      pipe.read.store(at + sizeof end, std::memory_order_release);
      end_frame(peer, end);
    } else {
      const int64_t part = std::min(left, there);
      if (part == 0) {
        if (in.target == nullptr || pipe.is_withdrawn.load(std::memory_order_acquire) == 0) break;
        if (bytes_in(pipe) > 0) continue;         // what was withdrawn may be a later message
        if (read_refusals_of(peer)) return true;  // told before it was withdrawn, and the reason
        // What is still to come means nothing; it may come late.
        in.discard = true;
        Message& message = *std::exchange(in.target, nullptr);
        fail(message, withdrawn_text(message, name_of(peer), in.done));
        return true;
      }
      if (!in.discard) copy_out(pipe, at, (in.target ? in.target->data : in.aside.data()) + in.done, part);
      pipe.read.store(at + static_cast<uint64_t>(part), std::memory_order_release);
      in.done += part;
    }
    moved = true;
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
    return true;
  }
  receivers_.remove(in.target);
  in.target->peer = peer;
  if (refuse(*in.target, peer, in.frame)) {
    in.target = nullptr;
    in.discard = true;
  }
  return true;
}

void ShmMail::end_frame(int peer, End end) {
  Incoming& in = incoming_[static_cast<size_t>(peer)];
  in.in_frame = false;
  if (end == End::withdrawn && in.target != nullptr) read_refusals_of(peer);  // told before, and the reason
  if (in.target != nullptr) {
    Message& message = *std::exchange(in.target, nullptr);
    message.done_bytes = in.frame.bytes;
    if (end == End::whole) finish(message);
    else fail(message, withdrawn_text(message, name_of(peer), 0));
  } else if (!in.discard && end == End::whole) {
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
  const auto it = std::find_if(receivers_.begin(), receivers_.end(),
                               [&](const Message* m) { return m->tag == tag && (m->peer == from || m->peer < 0); });
  return it == receivers_.end() ? nullptr : *it;
}

void ShmMail::cancel(Message& message) {
  if (message.is_send) {
    Outgoing& out = outgoing_[static_cast<size_t>(message.peer)];
    const bool has_begun = !out.queue.empty() && out.queue.front() == &message && out.header_sent;
    if (std::erase(out.queue, &message) == 0) return;
    if (has_begun) {
      out.owed = message.bytes - message.done_bytes;
      out.withdrawn = true;
      out.header_sent = false;
      segment_->pipe(rank_, message.peer).is_withdrawn.store(1, std::memory_order_release);
    }
    return finish(message);
  }
  bool was_posted = receivers_.remove(&message) > 0;
  for (Incoming& in : incoming_) {
    if (in.target != &message) continue;
    in.target = nullptr;
    in.discard = true;
    was_posted = true;
  }
  if (was_posted) finish(message);
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
