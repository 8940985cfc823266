#include "tutti/comm/mpi/mpi_world.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "tutti/comm/message/wire.h"
#include "tutti/core/error.h"
#include "tutti/job/host/liveness.h"
#include "tutti/runtime/fork_guard.h"

namespace tutti::comm {
namespace {

constexpr int kTag = 0x7477;
constexpr auto kLastWords = std::chrono::seconds(5);
// The thread yields for so long after something happened, then sleeps, longer and longer.
constexpr auto kYielding = std::chrono::microseconds(300);
constexpr std::chrono::microseconds kShortestSleep{20}, kLongestWaitedFor{200}, kLongestIdle{2000};

// In front of each packet.
struct alignas(64) Address {
  uint64_t group = 0;
  int32_t from = 0;
};

std::string text_of(int error) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, text, &length);
  return std::string(text, static_cast<size_t>(length));
}

const char* name_of_level(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE:
      return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED:
      return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED:
      return "MPI_THREAD_SERIALIZED";
    default:
      return "MPI_THREAD_MULTIPLE";
  }
}

void check(int error, const char* call) {
  TUTTI_CHECK_ENV(error == MPI_SUCCESS, "{} failed: {}", call, text_of(error));
}

class World final : public MpiWorld {
 public:
  World() : thread_([this] { run(); }) {}

  // Returns when MPI is not called any more.
  void stop() {
    if (process_.is_in_child()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      news_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

  void wait_until_ready(Clock::time_point deadline) {
    process_.check("MPI");
    std::unique_lock lock(mutex_);
    const bool done = started_.wait_until(lock, deadline, [&] { return ready_ || !start_error_.empty(); });
    TUTTI_CHECK_ENV(done,
                    "MPI has not started by the deadline: all ranks of MPI_COMM_WORLD must make a group of Tutti");
    TUTTI_CHECK_ENV(start_error_.empty(), "MPI cannot be used: {}", start_error_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void attach(uint64_t group, MpiInbox& inbox) override {
    const std::lock_guard lock(mutex_);
    inboxes_[group] = &inbox;
    if (const auto it = unclaimed_.find(group); it != unclaimed_.end()) {
      for (Packet& packet : it->second) inbox.came(std::move(packet));
      unclaimed_.erase(it);
    }
    for (const auto& [world_rank, why] : lost_) inbox.lost(world_rank, why);
  }

  void detach(uint64_t group) override {
    const std::lock_guard lock(mutex_);
    inboxes_.erase(group);
    retired_.insert(group);
  }

  void send(int world_rank, uint64_t group, int from, std::span<const ConstBlock> parts) override {
    Outgoing out{.to = world_rank, .bytes = sizeof(Address), .memory = {}, .request = MPI_REQUEST_NULL};
    for (const ConstBlock& part : parts) out.bytes += part.bytes;
    out.memory = allocate_packet(out.bytes);
    const Address address{.group = group, .from = from};
    std::memcpy(out.memory.get(), &address, sizeof address);
    std::byte* at = out.memory.get() + sizeof address;
    for (const ConstBlock& part : parts) {
      if (part.bytes > 0) std::memcpy(at, part.data, static_cast<size_t>(part.bytes));
      at += part.bytes;
    }
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(out));
    news_.notify_all();
  }

  void add_waiter(int change) override {
    const std::lock_guard lock(mutex_);
    waiters_ += change;
    if (change > 0) news_.notify_all();
  }

 private:
  struct Outgoing {
    int to;
    int64_t bytes;
    PacketMemory memory;
    MPI_Request request;
  };
  struct Incoming {
    Packet packet;
    int source;
    MPI_Request request;
    bool done;
  };

  void run() {
    try {
      start();
    } catch (const Error& error) {
      const std::lock_guard lock(mutex_);
      start_error_ = error.what();
      started_.notify_all();
      return;
    }
    auto last_news = Clock::now();
    std::chrono::microseconds sleep = kShortestSleep;
    std::optional<Clock::time_point> last_words;
    for (;;) {
      const bool moved = send_queued() | finish_sends() | receive();
      if (moved) {
        last_news = Clock::now();
        sleep = kShortestSleep;
        continue;
      }
      std::unique_lock lock(mutex_);
      if (stopping_) {
        if (!last_words) last_words = Clock::now() + kLastWords;
        if ((queue_.empty() && sends_.empty()) || Clock::now() > *last_words) break;
      }
      const bool is_busy = waiters_ > 0 || !sends_.empty() || !receives_.empty();
      if (is_busy && Clock::now() - last_news < kYielding) {
        lock.unlock();
        sched_yield();
        continue;
      }
      const bool had_waiters = waiters_ > 0;
      const bool woken = news_.wait_for(lock, sleep, [&] { return !queue_.empty() || (waiters_ > 0 && !had_waiters); });
      sleep = std::min(sleep * 2, is_busy ? kLongestWaitedFor : kLongestIdle);
      if (woken) last_news = Clock::now();
    }
    // A send that nobody takes would make MPI_Finalize wait for ever, and so would a rank that is gone.
    if (started_here_ && sends_.empty() && are_all_there()) MPI_Finalize();
  }

  void start() {
    int was_started = 0, was_finalized = 0, level = MPI_THREAD_SINGLE;
    MPI_Finalized(&was_finalized);
    TUTTI_CHECK_ENV(!was_finalized, "the program has called MPI_Finalize; make groups before");
    MPI_Initialized(&was_started);
    comm_ = MPI_COMM_WORLD;
    if (!was_started) {
      // The thread that starts MPI is the only one that ever calls it.
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
      TUTTI_CHECK_ENV(level >= MPI_THREAD_FUNNELED, "MPI gives {}; Tutti needs MPI_THREAD_FUNNELED",
                      name_of_level(level));
      started_here_ = true;
    } else {
      MPI_Query_thread(&level);
      TUTTI_CHECK_ENV(
          level == MPI_THREAD_MULTIPLE,
          "the program has started MPI with {}; call MPI_Init_thread with MPI_THREAD_MULTIPLE, or leave it to Tutti",
          name_of_level(level));
      // MPI_Finalize begins with this.
      int key = 0;
      check(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, before_finalize, &key, this), "MPI_Comm_create_keyval");
      check(MPI_Comm_set_attr(MPI_COMM_SELF, key, this), "MPI_Comm_set_attr");
      // Messages of the program's own must not meet ours.
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Comm_idup(MPI_COMM_WORLD, &comm_, &request), "MPI_Comm_idup");
      for (int done = 0; !done;) {
        check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Comm_idup");
        if (!done) std::this_thread::sleep_for(std::chrono::microseconds(100));
        const std::lock_guard lock(mutex_);
        TUTTI_CHECK_ENV(!stopping_, "the program ended while MPI started");
      }
    }
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    const std::lock_guard lock(mutex_);
    check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    ready_ = true;
    started_.notify_all();
  }

  static int before_finalize(MPI_Comm, int, void*, void* world) {
    static_cast<World*>(world)->stop();
    return MPI_SUCCESS;
  }

  bool send_queued() {
    std::deque<Outgoing> queue;
    {
      const std::lock_guard lock(mutex_);
      queue.swap(queue_);
    }
    for (Outgoing& out : queue) {
      const int error =
          MPI_Isend(out.memory.get(), static_cast<int>(out.bytes), MPI_BYTE, out.to, kTag, comm_, &out.request);
      if (error == MPI_SUCCESS) sends_.push_back(std::move(out));
      else lose(out.to, error, "MPI_Isend");
    }
    return !queue.empty();
  }

  bool finish_sends() {
    bool moved = false;
    for (auto it = sends_.begin(); it != sends_.end();) {
      int done = 0;
      const int error = MPI_Test(&it->request, &done, MPI_STATUS_IGNORE);
      if (error != MPI_SUCCESS) lose(it->to, error, "MPI_Isend");
      if (!done && error == MPI_SUCCESS) {
        ++it;
        continue;
      }
      it = sends_.erase(it);
      moved = true;
    }
    return moved;
  }

  bool receive() {
    bool moved = false;
    for (;;) {
      int found = 0;
      MPI_Message message;
      MPI_Status status;
      if (const int error = MPI_Improbe(MPI_ANY_SOURCE, kTag, comm_, &found, &message, &status); error != MPI_SUCCESS) {
        for (int p = 0; p < size_; ++p) {
          if (p != rank_) lose(p, error, "MPI_Improbe");
        }
        break;
      }
      if (!found) break;
      int bytes = 0;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      Incoming in{.packet = {}, .source = status.MPI_SOURCE, .request = MPI_REQUEST_NULL, .done = false};
      in.packet.memory = allocate_packet(std::max(bytes, 64));
      in.packet.start = sizeof(Address);
      in.packet.bytes = bytes - static_cast<int>(sizeof(Address));
      const int error = MPI_Imrecv(in.packet.memory.get(), bytes, MPI_BYTE, &message, &in.request);
      if (error == MPI_SUCCESS) receives_.push_back(std::move(in));
      else lose(status.MPI_SOURCE, error, "MPI_Imrecv");
      moved = true;
    }
    // Packets of one source are handed on in the order they were found.
    std::set<int> waiting;
    for (auto it = receives_.begin(); it != receives_.end();) {
      int done = 0;
      if (!it->done) {
        const int error = MPI_Test(&it->request, &done, MPI_STATUS_IGNORE);
        if (error != MPI_SUCCESS) {
          lose(it->source, error, "MPI_Imrecv");
          it = receives_.erase(it);
          continue;
        }
        it->done = done != 0;
      }
      if (!it->done || waiting.count(it->source) != 0) {
        waiting.insert(it->source);
        ++it;
        continue;
      }
      if (it->packet.bytes >= 0) hand_on(std::move(it->packet));
      it = receives_.erase(it);
      moved = true;
    }
    return moved;
  }

  void hand_on(Packet&& packet) {
    const Address address = *reinterpret_cast<const Address*>(packet.memory.get());
    packet.from = address.from;
    const std::lock_guard lock(mutex_);
    if (const auto it = inboxes_.find(address.group); it != inboxes_.end()) it->second->came(std::move(packet));
    else if (retired_.count(address.group) == 0) unclaimed_[address.group].push_back(std::move(packet));
  }

  void know(int world_rank, pid_t pid) override {
    const std::lock_guard lock(mutex_);
    pids_[world_rank] = pid;
  }

  bool are_all_there() {
    const std::lock_guard lock(mutex_);
    std::vector<pid_t> pids;
    for (const auto& [world_rank, pid] : pids_) pids.push_back(pid);
    return lost_.empty() && Liveness(std::move(pids)).find_dead() < 0;
  }

  void lose(int world_rank, int error, const char* call) {
    give_up(world_rank, fmt::format("{}: {}", call, text_of(error)));
  }

  void give_up(int world_rank, const std::string& why) override {
    const std::lock_guard lock(mutex_);
    if (!lost_.emplace(world_rank, why).second) return;
    for (const auto& [group, inbox] : inboxes_) inbox->lost(world_rank, why);
  }

  const ForkGuard process_;

  // These belong to the progress thread.
  MPI_Comm comm_ = MPI_COMM_NULL;
  bool started_here_ = false;
  std::deque<Outgoing> sends_;
  std::deque<Incoming> receives_;

  std::mutex mutex_;
  std::condition_variable news_;  // for the progress thread
  std::condition_variable started_;
  bool ready_ = false;
  bool stopping_ = false;
  std::string start_error_;
  int rank_ = -1;
  int size_ = 0;
  int waiters_ = 0;
  std::deque<Outgoing> queue_;
  std::map<uint64_t, MpiInbox*> inboxes_;
  std::map<uint64_t, std::vector<Packet>> unclaimed_;  // of groups that this process has not made yet
  std::set<uint64_t> retired_;                         // groups that have ended: latecomers are dropped
  std::map<int, std::string> lost_;
  std::map<int, pid_t> pids_;  // of ranks on this host
  std::thread thread_;         // last: starts when all else is there
};

}  // namespace

MpiWorld& MpiWorld::get(Clock::time_point deadline) {
  // Stopped when the program ends, but never destroyed: in a fork()ed child, the destructors of what the parent's
  // thread uses would wait for it.
  static World& world = *new World;
  struct Stop {
    ~Stop() { world.stop(); }
  };
  static const Stop at_exit;
  world.wait_until_ready(deadline);
  return world;
}

}  // namespace tutti::comm
