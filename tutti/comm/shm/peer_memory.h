// Reading the memory of the other ranks' processes where it is, through the kernel: one copy instead of one into shared
// memory and one out of it.
//
// Whether the kernel allows it (a sandbox, Yama's ptrace_scope, another user, another process-id namespace may not) is
// tried once: each rank tells where it keeps a secret, reads those of all others at the group's first meeting, and
// tells whose it could read before the second. The way is open when every rank could read every other one; the ranks
// see the same answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tutti/comm/shm/segment.h"

namespace tutti::comm {

// One rank's side. Belongs to one thread at a time.
class PeerMemory {
 public:
  // Tells where this rank's secret is. `allowed` false: this rank reads nobody, so the way stays closed for all.
  PeerMemory(std::shared_ptr<Segment> segment, int rank, bool allowed);

  // At the first meeting: tries every peer. At the second: takes the answers of all.
  void settle(uint64_t meeting);
  bool is_open() const { return is_open_; }
  // Copies `bytes` bytes at `address` of rank `peer` to `to`; "" or what the kernel said. `is_gone` becomes true when
  // there is no such process any more.
  std::string read(int peer, uint64_t address, std::byte* to, int64_t bytes, bool& is_gone) const;

 private:
  void try_all();

  std::shared_ptr<Segment> segment_;
  const int rank_;
  const bool allowed_;
  bool is_open_ = false;
  uint64_t secret_ = 0;
};

// Why processes of this user cannot read each other's memory here; "" when they can. Starts a process to try it.
std::string why_no_peer_memory();

}  // namespace tutti::comm
