#include "tutti/comm/gloo/gloo_connections.h"

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "tutti/comm/message/wire.h"
#include "tutti/core/error.h"
#include "tutti/runtime/held_signal.h"

namespace tutti::comm {
namespace {

// All packets of a pair travel in one slot, so they arrive in order.
constexpr uint64_t kSlot = 1;
// Receives that wait at each peer's connection: it need not ask before it sends so many packets.
constexpr int kPosted = 4;
// Packets up to here have memory of their own size; others share what packets come in.
constexpr int64_t kSmall = 32 << 10;
// gloo closes all connections of a group when a wait reaches its deadline; deadlines are kept elsewhere.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

// In the place of a packet's size, between engines: nothing more comes, and: all that you sent has come.
constexpr int64_t kBye = -1, kByeHeard = -2;

}  // namespace

GlooConnections::Box::Box() = default;
GlooConnections::Box::~Box() = default;
GlooConnections::Box::Box(Box&&) noexcept = default;
GlooConnections::Box& GlooConnections::Box::operator=(Box&&) noexcept = default;

GlooConnections::GlooConnections(GlooMesh mesh, std::vector<pid_t> pids)
    : context_(std::move(mesh.context)),
      rank_(context_->rank),
      size_(context_->size),
      room_(static_cast<int64_t>(sizeof(Prefix)) + max_packet_bytes(size_)),
      liveness_((pids.resize(static_cast<size_t>(size_)), std::move(pids))),
      peers_(static_cast<size_t>(size_)) {
  const HeldSignal held(SIGPIPE);  // also in the threads, which answer to those that leave
  waker_.emplace(std::move(mesh.device), [this] { send_all(); });
  for (int p = 0; p < size_; ++p) {
    if (p == rank_) continue;
    peer(p).socket = std::move(mesh.sockets[static_cast<size_t>(p)]);
    if (peer(p).socket.is_open()) end_when_host_is_silent(peer(p).socket.fd);
    for (int i = 0; i < kPosted; ++i) post(p);
    peer(p).thread = std::thread([this, p] { listen(p); });
  }
}

GlooConnections::~GlooConnections() {
  stopping_ = true;
  for (Peer& p : peers_) {
    {
      const std::lock_guard lock(mutex_);
      for (Box& box : p.receives) box.buffer->abortWaitRecv();
    }
    if (p.thread.joinable()) p.thread.join();
  }
  waker_.reset();  // after the listeners, which answer to those that leave
  // At once, so that no socket lingers: nobody waits for what is still under way.
  for (int p = 0; p < size_; ++p) {
    if (p != rank_) context_->getPair(p)->close();
  }
}

// ---- out ------------------------------------------------------------------------------------------------------------

void GlooConnections::send(int to, std::span<const ConstBlock> parts) {
  Prefix prefix;
  for (const ConstBlock& part : parts) prefix.bytes += part.bytes;
  send(to, prefix, parts);
}

void GlooConnections::send(int to, Prefix prefix, std::span<const ConstBlock> parts) {
  const int64_t whole = static_cast<int64_t>(sizeof prefix) + std::max<int64_t>(prefix.bytes, 0);
  Outgoing out{.to = to, .box = {}, .bytes = whole};
  out.box.is_whole = whole > kSmall;
  out.box.memory = out.box.is_whole ? whole_memory() : allocate_packet(whole);
  std::memcpy(out.box.memory.get(), &prefix, sizeof prefix);
  std::byte* at = out.box.memory.get() + sizeof prefix;
  for (const ConstBlock& part : parts) {
    if (part.bytes > 0) std::memcpy(at, part.data, static_cast<size_t>(part.bytes));
    at += part.bytes;
  }
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    if (peer(to).lost) return;
    is_first = outgoing_.empty();
    outgoing_.push_back(std::move(out));
  }
  if (is_first) waker_->wake();
}

// In gloo's thread, so packets go out in the order in which they were given.
void GlooConnections::send_all() {
  for (;;) {
    std::unique_lock lock(mutex_);
    is_sending_ = !outgoing_.empty();
    if (!is_sending_) return news_.notify_all();
    Outgoing out = std::move(outgoing_.front());
    outgoing_.pop_front();
    lock.unlock();
    send_now(std::move(out));
  }
}

void GlooConnections::send_now(Outgoing out) {
  Box& box = out.box;
  box.buffer = context_->createUnboundBuffer(box.memory.get(), static_cast<size_t>(out.bytes));
  {
    const std::lock_guard lock(mutex_);
    if (peer(out.to).lost) return;
    std::memcpy(box.memory.get() + offsetof(Prefix, counted), &peer(out.to).got, sizeof(Prefix::counted));
  }
  try {
    box.buffer->send(out.to, kSlot, 0, static_cast<size_t>(out.bytes));
  } catch (const std::exception&) {
    return;  // closed: its listener tells, after what it still brings
  }
  const std::lock_guard lock(mutex_);
  peer(out.to).sends.push_back(std::move(box));
}

bool GlooConnections::flush(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return news_.wait_for(lock, limit, [&] { return outgoing_.empty() && !is_sending_; });
}

bool GlooConnections::say_bye(std::chrono::milliseconds limit) {
  for (int p = 0; p < size_; ++p) {
    const auto is_there = [&] {
      const std::lock_guard lock(mutex_);
      return p != rank_ && !peer(p).lost && !peer(p).has_left;  // of one that has left, nobody reads any more
    };
    if (is_there()) send(p, Prefix{.bytes = kBye}, {});
  }
  std::unique_lock lock(mutex_);
  return news_.wait_for(lock, limit, [&] { return all_over(); });
}

bool GlooConnections::is_over() {
  const std::lock_guard lock(mutex_);
  return all_over();
}

bool GlooConnections::all_over() const {
  for (int p = 0; p < size_; ++p) {
    if (p != rank_ && !peers_[static_cast<size_t>(p)].is_over()) return false;
  }
  return true;
}

// ---- in -------------------------------------------------------------------------------------------------------------

bool GlooConnections::take(Packet& packet) {
  const std::lock_guard lock(mutex_);
  if (packets_.empty()) return false;
  packet = std::move(packets_.front());
  packets_.pop_front();
  return true;
}

void GlooConnections::recycle(Packet&& packet) {
  const std::lock_guard lock(mutex_);
  keep(std::move(packet.memory));
}

// Whoever has mutex_: memory of room_ bytes, as much as receives and sends have at a time.
void GlooConnections::keep(PacketMemory memory) {
  if (static_cast<int64_t>(spare_.size()) < (kPosted + kWindowChunks) * size_) spare_.push_back(std::move(memory));
}

PacketMemory GlooConnections::whole_memory() {
  {
    const std::lock_guard lock(mutex_);
    if (!spare_.empty()) {
      PacketMemory memory = std::move(spare_.back());
      spare_.pop_back();
      return memory;
    }
  }
  return allocate_packet(room_);
}

void GlooConnections::wait(std::chrono::microseconds limit) {
  std::unique_lock lock(mutex_);
  const int64_t losses = losses_;
  news_.wait_for(lock, limit, [&] { return !packets_.empty() || losses_ != losses; });
}

std::string GlooConnections::lost(int rank) {
  {
    const std::lock_guard lock(mutex_);
    if (has_silent_host(rank)) return fmt::format("its host has not answered for {} s", kSilenceOfAHost.count());
    if (!peer(rank).lost) return "";
  }
  return liveness_.is_dead(rank) ? "its process is gone" : "its connection was closed";
}

void GlooConnections::post(int p) {
  Box box;
  box.memory = whole_memory();
  box.buffer = context_->createUnboundBuffer(box.memory.get(), static_cast<size_t>(room_));
  try {
    box.buffer->recv(p, kSlot, 0, static_cast<size_t>(room_));
  } catch (const std::exception&) {
    return;  // closed: the receives posted before tell, after what they still bring
  }
  const std::lock_guard lock(mutex_);
  peer(p).receives.push_back(std::move(box));
}

void GlooConnections::listen(int p) {
  while (!stopping_) {
    gloo::transport::UnboundBuffer* buffer = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (!peer(p).receives.empty()) buffer = peer(p).receives.front().buffer.get();
    }
    if (buffer == nullptr) return lose(p);
    try {
      if (!buffer->waitRecv(nullptr, kForever)) return;
    } catch (const std::exception& error) {
      return lose(p, std::string_view(error.what()).find(detail::errno_text(ETIMEDOUT)) != std::string_view::npos);
    }
    std::vector<Box> counted;
    const bool says_bye = hand_on(p, counted);
    free_sent(std::move(counted));
    post(p);
    if (says_bye) send(p, Prefix{.bytes = kByeHeard}, {});
  }
}

// The front one has been filled. True when its sender leaves. counted: what it has got of this rank, to be freed
// outside of the lock.
bool GlooConnections::hand_on(int p, std::vector<Box>& counted) {
  Box box;
  const std::lock_guard lock(mutex_);
  Peer& from = peer(p);
  box = std::move(from.receives.front());
  from.receives.pop_front();
  box.buffer.reset();
  ++from.got;
  Prefix prefix;
  std::memcpy(&prefix, box.memory.get(), sizeof prefix);
  for (; from.freed < prefix.counted && !from.sends.empty(); ++from.freed) {
    counted.push_back(std::move(from.sends.front()));
    from.sends.pop_front();
  }
  if (prefix.bytes == kBye || prefix.bytes == kByeHeard) {
    (prefix.bytes == kBye ? from.has_left : from.has_heard) = true;
    keep(std::move(box.memory));
    news_.notify_all();
    return prefix.bytes == kBye;
  }
  Packet packet;
  packet.from = p;
  packet.start = sizeof prefix;
  packet.bytes = std::clamp<int64_t>(prefix.bytes, 0, room_ - static_cast<int64_t>(sizeof prefix));
  packet.memory = std::move(box.memory);
  packets_.push_back(std::move(packet));
  news_.notify_all();
  return false;
}

// gloo may hold on to their buffers for a moment.
void GlooConnections::free_sent(std::vector<Box> boxes) {
  for (Box& box : boxes) {
    box.buffer.reset();
    if (!box.is_whole) continue;
    const std::lock_guard lock(mutex_);
    keep(std::move(box.memory));
  }
}

// Whoever has mutex_.
bool GlooConnections::has_silent_host(int p) {
  Peer& of = peer(p);
  of.is_silent = of.is_silent || (!of.lost && of.socket.is_open() && of.silence.is_silent(of.socket.fd));
  return of.is_silent;
}

void GlooConnections::lose(int p, bool is_silent) {
  const std::lock_guard lock(mutex_);
  peer(p).lost = true;
  peer(p).is_silent |= is_silent;
  ++losses_;
  news_.notify_all();
}

}  // namespace tutti::comm
