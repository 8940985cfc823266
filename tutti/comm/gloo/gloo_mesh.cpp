#include "tutti/comm/gloo/gloo_mesh.h"

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/comm/gloo/broken_pipe.h"
#include "tutti/comm/gloo/interface.h"
#include "tutti/comm/message/message_transport.h"
#include "tutti/comm/message/wire.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

namespace tcp = gloo::transport::tcp;
using gloo::transport::UnboundBuffer;

// All packets of a pair travel in one slot, so they arrive in order. Nothing is ever sent in the other.
constexpr uint64_t kSlot = 1, kProbeSlot = 2;
// Receives that wait at each peer's connection: it need not ask before it sends so many packets.
constexpr int kPosted = 4;
// gloo closes all connections of a group when a wait reaches its deadline; deadlines are kept elsewhere.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);

// In the place of a packet's size, between engines: nothing more comes, and: all that you sent has come.
constexpr int64_t kBye = -1, kByeHeard = -2;
// How long one that leaves waits until the others' listeners have all that it sent. It takes them no longer than to read it,
// whatever their programs do; until then the end of this process would lose what waits here for a receive of theirs.
constexpr std::chrono::seconds kStay{1};

// In front of each packet. gloo does not tell how much of a buffer was filled, nor (without blocking) when a send is
// done: a send that the peer has counted is.
struct alignas(64) Prefix {
  int64_t bytes = 0;
  int64_t counted = 0;  // packets that the sender of this one has got from its receiver
};

struct Box {
  PacketMemory memory;
  std::unique_ptr<UnboundBuffer> buffer;
};

using Context = gloo::transport::Context;

// Closing a connection drops what the peer has not read yet, so a group's connections stay here until the peers have
// closed them too; the system closes the rest, in good order, when the process ends.
class Parked {
 public:
  struct Entry {
    int rank;
    int size;
    std::vector<Box> boxes;
    std::shared_ptr<Context> context;
  };

  void add(Entry entry) {
    const BrokenPipeHeld held;
    const std::lock_guard lock(mutex_);
    std::erase_if(parked_, [](Entry& e) { return all_closed(e); });
    parked_.push_back(std::move(entry));
  }
  // Never destroyed: the process may end while peers read.
  static Parked& get() {
    static Parked* parked = new Parked;
    return *parked;
  }

 private:
  static bool all_closed(Entry& entry) {
    bool all = true;
    for (int p = 0; p < entry.size && all; ++p) {
      if (p == entry.rank) continue;
      try {
        Box probe{allocate_packet(64), nullptr};
        probe.buffer = entry.context->createUnboundBuffer(probe.memory.get(), 64);
        probe.buffer->recv(p, kProbeSlot, 0, 64);  // throws on a closed connection
        entry.boxes.push_back(std::move(probe));
        all = false;
      } catch (const std::exception&) {
      }
    }
    return all;
  }
  std::mutex mutex_;
  std::vector<Entry> parked_;
};

// One thread per peer waits for its packets: gloo's receives can be waited for, but not asked.
class GlooEngine final : public MessageEngine {
 public:
  GlooEngine(std::shared_ptr<Context> context, int rank, int size)
      : context_(std::move(context)),
        rank_(rank),
        size_(size),
        room_(static_cast<int64_t>(sizeof(Prefix)) + max_packet_bytes(size)),
        peers_(static_cast<size_t>(size)) {
    for (int p = 0; p < size_; ++p) {
      if (p == rank_) continue;
      for (int i = 0; i < kPosted; ++i) post(p);
      peer(p).thread = std::thread([this, p] { listen(p); });
    }
  }

  ~GlooEngine() override {
    say_bye();
    stopping_ = true;
    Parked::Entry entry{rank_, size_, {}, nullptr};
    for (Peer& p : peers_) {
      {
        const std::lock_guard lock(mutex_);
        for (Box& box : p.receives) box.buffer->abortWaitRecv();
      }
      if (p.thread.joinable()) p.thread.join();
      for (Box& box : p.receives) entry.boxes.push_back(std::move(box));
      for (Box& box : p.sends) entry.boxes.push_back(std::move(box));
    }
    entry.context = std::move(context_);
    Parked::get().add(std::move(entry));
  }

  const char* name() const override { return "gloo"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void send(int to, std::span<const ConstBlock> parts) override {
    Prefix prefix;
    for (const ConstBlock& part : parts) prefix.bytes += part.bytes;
    send(to, prefix, parts);
  }

  bool take(Packet& packet) override {
    const std::lock_guard lock(mutex_);
    if (packets_.empty()) return false;
    packet = std::move(packets_.front());
    packets_.pop_front();
    return true;
  }

  void recycle(Packet&& packet) override {
    const std::lock_guard lock(mutex_);
    if (static_cast<int>(spare_.size()) < kPosted * size_) spare_.push_back(std::move(packet.memory));
    packet.memory.reset();
  }

  void wait(std::chrono::microseconds limit) override {
    std::unique_lock lock(mutex_);
    const int64_t losses = losses_;
    news_.wait_for(lock, limit, [&] { return !packets_.empty() || losses_ != losses; });
  }

  std::string lost(int rank) const override {
    const std::lock_guard lock(mutex_);
    return peers_[static_cast<size_t>(rank)].lost ? "its connection was closed" : "";
  }

 private:
  struct Peer {
    std::thread thread;
    std::deque<Box> receives;  // in the order packets come
    std::mutex send_mutex;
    std::deque<Box> sends;     // that the peer has not counted
    int64_t freed = 0;         // sends that it has
    int64_t got = 0;
    bool lost = false;
    bool has_left = false;   // said kBye
    bool has_heard = false;  // said kByeHeard
  };

  void send(int to, Prefix prefix, std::span<const ConstBlock> parts) {
    const int64_t whole = static_cast<int64_t>(sizeof prefix) + std::max<int64_t>(prefix.bytes, 0);
    Box box{allocate_packet(whole), nullptr};
    std::byte* at = box.memory.get() + sizeof prefix;
    for (const ConstBlock& part : parts) {
      if (part.bytes > 0) std::memcpy(at, part.data, static_cast<size_t>(part.bytes));
      at += part.bytes;
    }
    box.buffer = context_->createUnboundBuffer(box.memory.get(), static_cast<size_t>(whole));
    // One sender at a time per peer keeps the order; gloo calls back from another thread, so mutex_ is not held.
    const std::lock_guard order(peer(to).send_mutex);
    {
      const std::lock_guard lock(mutex_);
      if (peer(to).lost) return;
      prefix.counted = peer(to).got;
      std::memcpy(box.memory.get(), &prefix, sizeof prefix);
    }
    try {
      const BrokenPipeHeld held;
      box.buffer->send(to, kSlot, 0, static_cast<size_t>(whole));
    } catch (const std::exception&) {
      return lose(to);
    }
    const std::lock_guard lock(mutex_);
    peer(to).sends.push_back(std::move(box));
  }

  // To those that are there; of one that has left, nobody reads any more.
  void say_bye() {
    const auto is_there = [](const Peer& p) { return !p.lost && !p.has_left; };
    for (int p = 0; p < size_; ++p) {
      const auto there = [&] {
        const std::lock_guard lock(mutex_);
        return p != rank_ && is_there(peer(p));
      };
      if (there()) send(p, Prefix{.bytes = kBye}, {});
    }
    std::unique_lock lock(mutex_);
    news_.wait_for(lock, kStay, [&] {
      bool all = true;
      for (int p = 0; p < size_; ++p) all = all && (p == rank_ || !is_there(peer(p)) || peer(p).has_heard);
      return all;
    });
  }

  Peer& peer(int p) { return peers_[static_cast<size_t>(p)]; }

  void post(int p) {
    Box box;
    {
      const std::lock_guard lock(mutex_);
      if (!spare_.empty()) {
        box.memory = std::move(spare_.back());
        spare_.pop_back();
      }
    }
    if (box.memory == nullptr) box.memory = allocate_packet(room_);
    box.buffer = context_->createUnboundBuffer(box.memory.get(), static_cast<size_t>(room_));
    try {
      box.buffer->recv(p, kSlot, 0, static_cast<size_t>(room_));
    } catch (const std::exception&) {
      return;  // closed: the receives posted before tell, after what they still bring
    }
    const std::lock_guard lock(mutex_);
    peer(p).receives.push_back(std::move(box));
  }

  void listen(int p) {
    while (!stopping_) {
      UnboundBuffer* buffer = nullptr;
      {
        const std::lock_guard lock(mutex_);
        if (!peer(p).receives.empty()) buffer = peer(p).receives.front().buffer.get();
      }
      if (buffer == nullptr) return lose(p);
      try {
        if (!buffer->waitRecv(nullptr, kForever)) return;
      } catch (const std::exception&) {
        return lose(p);
      }
      const bool says_bye = hand_on(p);
      post(p);
      if (says_bye) send(p, Prefix{.bytes = kByeHeard}, {});
    }
  }

  // Whether it was the last.
  bool hand_on(int p) {
    std::vector<Box> counted;  // freed outside of the lock: gloo may still hold on to them for a moment
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
      spare_.push_back(std::move(box.memory));
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

  // Receiving or sending, whichever sees it first.
  void lose(int p) {
    const std::lock_guard lock(mutex_);
    peer(p).lost = true;
    ++losses_;
    news_.notify_all();
  }

  std::shared_ptr<Context> context_;
  const int rank_;
  const int size_;
  const int64_t room_;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Peer> peers_;
  std::deque<Packet> packets_;
  std::vector<PacketMemory> spare_;
  int64_t losses_ = 0;
};

std::chrono::milliseconds time_until(Clock::time_point deadline) {
  return std::max(std::chrono::milliseconds(1), std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()));
}

std::string key_of(const GroupSeat& seat, int rank) { return fmt::format("{}/gloo/{}", seat.key, rank); }

}  // namespace

std::unique_ptr<MessageEngine> make_gloo_engine(const GroupSeat& seat) {
  TUTTI_CHECK(seat.store != nullptr, "group '{}': gloo needs a store in which the ranks find each other's addresses", seat.name);
  const char* wanted = std::getenv("GLOO_SOCKET_IFNAME");
  const InterfaceChoice chosen = choose_interface(wanted ? wanted : "");
  tcp::attr attributes;
  attributes.iface = chosen.name;
  if (chosen.name.empty()) attributes.hostname = chosen.address;
  const BrokenPipeHeld held;  // also in the threads of gloo and of the engine, which are started here
  std::shared_ptr<Context> context;
  std::string step = fmt::format("listening on {}", chosen.address);
  try {
    const auto device = tcp::CreateDevice(attributes);
    context = device->createContext(seat.rank, seat.size);
    // gloo waits five times as long for a connection.
    context->setTimeout(time_until(seat.deadline) / 5 + std::chrono::milliseconds(1));
    // Every pair listens on a port of its own: one value holds all addresses of this rank, each after its length.
    std::string addresses;
    for (int p = 0; p < seat.size; ++p) {
      const std::vector<char> bytes = p == seat.rank ? std::vector<char>() : context->createPair(p)->address().bytes();
      const auto length = static_cast<uint32_t>(bytes.size());
      addresses.append(reinterpret_cast<const char*>(&length), sizeof length);
      addresses.append(bytes.begin(), bytes.end());
    }
    seat.store->set(key_of(seat, seat.rank), addresses);
    for (int p = 0; p < seat.size; ++p) {
      if (p == seat.rank) continue;
      step = fmt::format("connecting to rank {}", p);
      const std::string theirs = seat.store->get(key_of(seat, p), time_until(seat.deadline));
      size_t at = 0;
      uint32_t length = 0;
      for (int q = 0; q <= seat.rank; ++q) {
        at += length;
        TUTTI_CHECK_ENV(at + sizeof length <= theirs.size(), "group '{}': what the store has for rank {} are no addresses", seat.name, p);
        std::memcpy(&length, theirs.data() + at, sizeof length);
        at += sizeof length;
      }
      TUTTI_CHECK_ENV(length > 0 && length <= theirs.size() - at, "group '{}': what the store has for rank {} are no addresses", seat.name, p);
      const std::vector<char> bytes(theirs.begin() + static_cast<int64_t>(at), theirs.begin() + static_cast<int64_t>(at + length));
      step = fmt::format("connecting to rank {} at {}", p, tcp::Address(bytes).str());
      context->getPair(p)->connect(bytes);
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw EnvironmentError(fmt::format(
        "group '{}', rank {}: {} through gloo failed by the deadline: {}. Peers must be able to reach this host's address {}; "
        "GLOO_SOCKET_IFNAME names another interface", seat.name, seat.rank, step, error.what(), chosen.address));
  }
  return std::make_unique<GlooEngine>(std::move(context), seat.rank, seat.size);
}

std::unique_ptr<Transport> make_gloo_transport(const GroupSeat& seat) {
  return std::make_unique<MessageTransport>(make_gloo_engine(seat), seat.name);
}

}  // namespace tutti::comm
