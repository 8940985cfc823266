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

namespace tutti::comm::functional {

// The works of one rank. Any thread may call. destroy_process_group() ends it; a rank that ends with works nobody waited
// for says so on stderr, once.
class WorkRegistry {
 public:
  static WorkRegistry& current();
  WorkRegistry();
  ~WorkRegistry();
  WorkRegistry(const WorkRegistry&) = delete;
  WorkRegistry& operator=(const WorkRegistry&) = delete;

  // Says how many works nobody waited for, and lets go of all.
  void end();

  // A work that is registered for this storage already is not registered again.
  void add(const StorageRef& storage, const Work& work);
  std::vector<Work> find(const StorageRef& storage) const;
  // Forgets these works of the storage.
  void remove(const StorageRef& storage, std::span<const Work> works);
  // Works registered, and those among them that nobody waited for: failed ones stay, to throw again, and do not count.
  int64_t size() const;
  int64_t unwaited() const;

 private:
  struct Entry {
    StorageRef storage;
    std::vector<Work> works;
  };
  std::vector<Entry> sweep();

  const int rank_;
  mutable std::mutex mutex_;
  std::map<const Storage*, Entry> entries_;
  int64_t bytes_since_sweep_ = 0;
  size_t sweep_at_;
};

// Registers `work` for the storage of `tensor` with the current rank.
void register_work(const Tensor& tensor, const Work& work);
// Registers the works of `from` for the storage of `to`, too.
void share_works(const Tensor& from, const Tensor& to);
// Whether any rank of this process has works for the storage of `tensor`.
bool has_works(const Tensor& tensor);
// Waits for all works of the storage of `tensor`: those of the current rank, else those of any rank of this process.
// Throws what a work failed with, also when asked again. Without works it returns at once.
void wait_works(const Tensor& tensor);

}  // namespace tutti::comm::functional
