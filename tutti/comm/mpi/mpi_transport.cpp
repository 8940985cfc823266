// The transport for ranks started by mpirun, on one or several hosts.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <vector>

#include "tutti/comm/message/message_transport.h"
#include "tutti/comm/mpi/mpi_world.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/job/host/liveness.h"

namespace tutti::comm {
namespace {

// MPI may say nothing of a rank that has died, so those of this host are watched. What a rank sent before it died comes
// within this time.
constexpr std::chrono::milliseconds kLastPackets{200};

class MpiEngine final : public MessageEngine, private MpiInbox {
 public:
  // pids[p]: of the group's rank p on this host, 0 elsewhere; empty: unknown.
  MpiEngine(MpiWorld& world, uint64_t group, int rank, std::vector<int> world_ranks, std::vector<pid_t> pids)
      : world_(world),
        group_(group),
        rank_(rank),
        world_ranks_(std::move(world_ranks)),
        lost_(world_ranks_.size()),
        dead_(world_ranks_.size()) {
    pids.resize(world_ranks_.size());
    for (size_t p = 0; p < pids.size(); ++p) {
      if (pids[p] != 0) world_.know(world_ranks_[p], pids[p]);
    }
    liveness_ = std::make_unique<Liveness>(std::move(pids));
    world_.attach(group_, *this);
  }
  ~MpiEngine() override { world_.detach(group_); }

  const char* name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_ranks_.size()); }

  void send(int to, std::span<const ConstBlock> parts) override {
    world_.send(world_ranks_[static_cast<size_t>(to)], group_, rank_, parts);
  }

  bool take(Packet& packet) override {
    const std::lock_guard lock(mutex_);
    if (packets_.empty()) return false;
    packet = std::move(packets_.front());
    packets_.pop_front();
    return true;
  }

  void recycle(Packet&& packet) override { packet.memory.reset(); }

  void wait(std::chrono::microseconds limit) override {
    world_.add_waiter(1);
    {
      std::unique_lock lock(mutex_);
      news_.wait_for(lock, limit, [&] { return !packets_.empty(); });
    }
    world_.add_waiter(-1);
  }

  std::string lost(int rank) const override {
    {
      const std::lock_guard lock(mutex_);
      std::optional<Clock::time_point>& dead_since = dead_[static_cast<size_t>(rank)];
      if (!dead_since && liveness_->is_dead(rank)) dead_since = Clock::now();
      const std::string& why = lost_[static_cast<size_t>(rank)];
      if (!why.empty() || !dead_since || Clock::now() < *dead_since + kLastPackets) return why;
    }
    world_.give_up(world_ranks_[static_cast<size_t>(rank)], "its process is gone");
    return "its process is gone";
  }

 private:
  void came(Packet&& packet) override {
    if (packet.from < 0 || packet.from >= size() || packet.from == rank_) return;
    const std::lock_guard lock(mutex_);
    packets_.push_back(std::move(packet));
    news_.notify_all();
  }

  void lost(int world_rank, const std::string& why) override {
    const std::lock_guard lock(mutex_);
    for (size_t p = 0; p < world_ranks_.size(); ++p) {
      if (world_ranks_[p] == world_rank) lost_[p] = why;
    }
    news_.notify_all();
  }

  MpiWorld& world_;
  const uint64_t group_;
  const int rank_;
  const std::vector<int> world_ranks_;
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Packet> packets_;
  std::vector<std::string> lost_;
  mutable std::vector<std::optional<Clock::time_point>> dead_;  // since when
  std::unique_ptr<Liveness> liveness_;
};

// The members give a group the same number: what it is called, who is in it, and how many such groups they made before.
uint64_t number_of_group(const GroupSeat& seat, const std::vector<int>& members) {
  static std::mutex mutex;
  static std::map<uint64_t, uint64_t> made;
  const uint64_t hash = hash64(members.data(), members.size() * sizeof(int), hash64(seat.key, hash64(seat.name)));
  const std::lock_guard lock(mutex);
  const uint64_t nth = made[hash]++;
  return hash64(&nth, sizeof nth, hash);
}

// Needs no store: seat.world_ranks are the members' ranks in MPI_COMM_WORLD (empty: 0, 1, ...). Any ranks can
// form a group without the others. UsageError when a world rank does not exist, or when this rank's is not that of this
// process; EnvironmentError when MPI cannot be started.
std::unique_ptr<Transport> make_mpi_transport(const GroupSeat& seat) {
  MpiWorld& world = MpiWorld::get(seat.deadline);
  std::vector<int> members = seat.world_ranks;
  if (members.empty()) {
    members.resize(static_cast<size_t>(seat.size));
    std::iota(members.begin(), members.end(), 0);
  }
  TUTTI_CHECK(static_cast<int>(members.size()) == seat.size, "group '{}' of {} ranks has {} world ranks", seat.name,
              seat.size, members.size());
  for (const int r : members) {
    TUTTI_CHECK(r >= 0 && r < world.size(),
                "group '{}' needs rank {} of MPI_COMM_WORLD, which has {} ranks; start the program with mpirun -n",
                seat.name, r, world.size());
  }
  TUTTI_CHECK(members[static_cast<size_t>(seat.rank)] == world.rank(),
              "group '{}': its rank {} is rank {} of the world, but this process is rank {} of MPI_COMM_WORLD",
              seat.name, seat.rank, members[static_cast<size_t>(seat.rank)], world.rank());
  const uint64_t number = number_of_group(seat, members);
  return std::make_unique<MessageTransport>(
      std::make_unique<MpiEngine>(world, number, seat.rank, std::move(members), seat.pids), seat.name, seat.identities);
}

}  // namespace

TUTTI_TRANSPORT(mpi, make_mpi_transport);

}  // namespace tutti::comm
