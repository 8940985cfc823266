// The state shared by the copies of one SymmGroup. May be used by any thread: `mutex` protects what changes, and
// collective calls are serialized by `collective`.
#pragma once

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/runtime/fork_guard.h"
#include "tutti/symm/group.h"

namespace tutti::comm::symm {

class CallBoard;
class Connection;
class SymmHandle;
class WorkspacePool;

// A handle is found by which allocation it is for, never by a name, an address or contents.
struct HandleKey {
  uint64_t allocation = 0;  // number of the allocation in this process; never given twice
  uint64_t generation = 0;  // of its memory
  int64_t offset = 0;       // bytes from its first data byte
  friend auto operator<=>(const HandleKey&, const HandleKey&) = default;
};

class GroupState {
 public:
  const ForkGuard process;
  std::string key;
  std::string name;
  int rank = 0;
  int size = 1;
  std::shared_ptr<Store> store;
  std::vector<int> global_ranks;
  std::chrono::milliseconds timeout;

  std::mutex collective;
  // The number of this group among those that this rank made under the key, from 1; 0 until the first meeting.
  // Protected by `collective`.
  int64_t incarnation = 0;
  int64_t meetings = 0;                 // number of the last rendezvous; under `collective`
  std::vector<std::string> stale_keys;  // that a failed meeting left in the store. Under `collective`.
  std::vector<pid_t> pids;              // of the ranks, as of the last meeting; empty before. Under `collective`.

  std::mutex ops;                    // ops come one at a time, in the order in which they are called
  std::shared_ptr<CallBoard> board;  // made at the first op. Under `ops`.

  std::mutex mutex;
  std::string backend;       // "" until bound
  uint64_t allocations = 0;  // made for this group: the ordinal that all ranks must agree on
  std::map<HandleKey, std::shared_ptr<SymmHandle>> handles;
  std::shared_ptr<WorkspacePool> workspace;

  ~GroupState();
  void remove_stale_keys() noexcept;
  // The allocation is gone: so is what was cached for it.
  void forget(uint64_t allocation);
};

}  // namespace tutti::comm::symm
