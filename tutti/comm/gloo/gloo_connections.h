// The gloo connections of one group on one rank: sending and receiving of packets, and shutdown.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tutti/comm/gloo/handover.h"
#include "tutti/comm/gloo/loop_waker.h"
#include "tutti/comm/message/message_engine.h"
#include "tutti/job/host/liveness.h"
#include "tutti/job/store/silent_host.h"

namespace gloo::transport {
class Context;
class UnboundBuffer;
}  // namespace gloo::transport

namespace tutti::comm {

// One thread per peer waits for its packets: gloo's receives can be waited for, but not asked. send() and lost() may be
// called by any thread, the others by one at a time.
class GlooConnections {
 public:
  GlooConnections(GlooMesh mesh, std::vector<pid_t> pids);
  // Closes all connections; data that has not been received by then is lost.
  ~GlooConnections();
  GlooConnections(const GlooConnections&) = delete;
  GlooConnections& operator=(const GlooConnections&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // As those of MessageEngine.
  void send(int to, std::span<const ConstBlock> parts);
  bool take(Packet& packet);
  void recycle(Packet&& packet);
  void wait(std::chrono::microseconds limit);
  std::string lost(int rank);

  // Tells the peers that nothing more comes. True when all have heard what they were sent, or have gone themselves;
  // waits for them `limit` at most. is_over() asks again later.
  bool say_bye(std::chrono::milliseconds limit);
  // Waits until gloo has all that was sent; false when it has not within the limit. Any thread.
  bool flush(std::chrono::milliseconds limit);
  bool is_over();

 private:
  // Memory that gloo writes into or reads from.
  struct Box {
    Box();
    ~Box();
    Box(Box&&) noexcept;
    Box& operator=(Box&&) noexcept;
    PacketMemory memory;
    bool is_whole = false;  // it has room_ bytes
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  };
  // In front of each packet. gloo does not tell how much of a buffer was filled, nor (without blocking) when a send is
  // done: a send that the peer has counted is.
  struct alignas(64) Prefix {
    int64_t bytes = 0;
    int64_t counted = 0;     // packets that the sender of this one has got from its receiver
    int64_t unused[6] = {};  // of the line; nothing of this process's stack
  };
  struct Peer {
    std::thread thread;
    std::deque<Box> receives;  // in the order packets come
    std::deque<Box> sends;     // that the peer has not counted
    int64_t freed = 0;         // sends that it has
    int64_t got = 0;
    bool lost = false;
    PairSocket socket;
    SilenceWatch silence;
    bool is_silent = false;  // its host
    bool has_left = false;   // said kBye
    bool has_heard = false;  // said kByeHeard

    bool is_over() const { return lost || has_left || has_heard; }
  };

  // What is sent next, in gloo's thread.
  struct Outgoing {
    int to;
    Box box;
    int64_t bytes;
  };

  void send(int to, Prefix prefix, std::span<const ConstBlock> parts);
  PacketMemory whole_memory();
  void keep(PacketMemory memory);
  void send_all();
  void send_now(Outgoing out);
  Peer& peer(int p) { return peers_[static_cast<size_t>(p)]; }
  bool all_over() const;
  void post(int p);
  void listen(int p);
  bool hand_on(int p, std::vector<Box>& counted);
  void free_sent(std::vector<Box> boxes);
  void lose(int p, bool is_silent = false);
  bool has_silent_host(int p);

  std::shared_ptr<gloo::transport::Context> context_;
  const int rank_;
  const int size_;
  const int64_t room_;
  Liveness liveness_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Peer> peers_;
  std::deque<Packet> packets_;
  std::vector<PacketMemory> spare_;
  int64_t losses_ = 0;
  std::deque<Outgoing> outgoing_;
  bool is_sending_ = false;         // gloo's thread has taken one
  std::optional<LoopWaker> waker_;  // its thread uses what stands before it
};

}  // namespace tutti::comm
