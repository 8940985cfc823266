// The use of MPI by one process: a single thread, the only caller of MPI, transfers packets for all groups of this
// process.
//
// A packet is one MPI message to a rank of MPI_COMM_WORLD and starts with the group it belongs to. So any ranks
// can form a group without the others, no communicators are created, and one tag is enough.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tutti/comm/message/message_engine.h"

namespace tutti::comm {

// Where the packets of one group of this process go. Called by the progress thread.
class MpiInbox {
 public:
  virtual ~MpiInbox() = default;
  virtual void came(Packet&& packet) = 0;
  virtual void lost(int world_rank, const std::string& why) = 0;
};

class MpiWorld {
 public:
  // Starts MPI, or uses the MPI that the program has started: with MPI_THREAD_MULTIPLE, and all ranks of MPI_COMM_WORLD
  // must use Tutti. EnvironmentError when it cannot be used. What was started here is finalized when the program ends;
  // a program that calls MPI_Finalize itself has ended its groups before.
  static MpiWorld& get(Clock::time_point deadline);

  virtual ~MpiWorld() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // From now on packets of `group` go to `inbox`, also those that came before; until detach().
  virtual void attach(uint64_t group, MpiInbox& inbox) = 0;
  virtual void detach(uint64_t group) = 0;
  // `from`: the sender's rank in the group. Copies the parts. Any thread.
  virtual void send(int world_rank, uint64_t group, int from, std::span<const ConstBlock> parts) = 0;
  // The process of a rank of this host. MPI is not finalized once one of them is gone.
  virtual void know(int world_rank, pid_t pid) = 0;
  // Somebody has found that `world_rank` is gone: every group hears of it, and MPI is not finalized, which would wait
  // for it.
  virtual void give_up(int world_rank, const std::string& why) = 0;
  // The thread looks more often while somebody waits.
  virtual void add_waiter(int change) = 0;
};

}  // namespace tutti::comm
