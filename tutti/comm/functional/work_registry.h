// WorkRegistry: which collectives still write a storage.
//
// A functional collective returns at once; what it started is registered here under the storage of its result, and
// whoever reads the result waits for all works of that storage first. Entries are keyed by the identity of the storage
// and hold it, so that neither a new storage at the same address nor a storage without bytes can be taken for it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "tutti/comm/work.h"
#include "tutti/runtime/fork_guard.h"

namespace tutti::comm::functional {

// The works of one rank. May be used by any thread. destroy_process_group() ends it; a rank that ends with works that
// were never waited for reports this once on stderr.
class WorkRegistry {
 public:
  static WorkRegistry& current();
  WorkRegistry();
  ~WorkRegistry();
  WorkRegistry(const WorkRegistry&) = delete;
  WorkRegistry& operator=(const WorkRegistry&) = delete;

  // Reports how many works were never waited for, and releases all of them.
  void end();

  // Registers a work for a storage, unless it already is. `wants_wait`: somebody has to wait for it.
  void add(const StorageRef& storage, const Work& work, bool wants_wait = true);
  std::vector<Work> find(const Storage& storage) const;
  // Removes these works, from all storages that they write: who has waited for one result of a call has waited for the
  // others.
  void remove(std::span<const Work> works);
  // The number of registered works, and of those that somebody should have waited for and nobody has. Failed works stay
  // registered, in order to throw again, and are not counted by unwaited(), nor are those of a fork()ed child's parent.
  int64_t size() const;
  int64_t unwaited() const;

 private:
  struct Entry {
    StorageRef storage;
    std::vector<Work> works;
    bool wants_wait = false;
  };
  std::vector<Entry> sweep();

  const ForkGuard process_;
  const int rank_;
  mutable std::mutex mutex_;
  std::map<const Storage*, Entry> entries_;
  int64_t bytes_since_sweep_ = 0;
  size_t sweep_at_;
};

// Registers `work` for the storage of `tensor` with the current rank. The storage is pending until the works are waited
// for.
void register_work(const Tensor& tensor, const Work& work, bool wants_wait = true);
// Registers the works of `from` for the storage of `to`, too.
void share_works(const Tensor& from, const Tensor& to);
// Whether any rank of this process has works for the storage of `tensor`.
bool has_works(const Tensor& tensor);
// Waits for all works of the storage of `tensor`: those of the current rank, else those of any rank of this process.
// Throws the error of a failed work, each time it is called. Returns immediately if there are no works.
void wait_works(const Tensor& tensor);

}  // namespace tutti::comm::functional
