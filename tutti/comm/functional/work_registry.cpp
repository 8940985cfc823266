#include "tutti/comm/functional/work_registry.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "tutti/runtime/rank_context.h"

namespace tutti::comm::functional {
namespace {

// A sweep lets go of results that were dropped without a wait; it runs when this much may have gathered.
constexpr size_t kSweepEntries = 64;
constexpr int64_t kSweepBytes = int64_t{64} << 20;

void warn(int rank, int64_t count) {
  std::fprintf(stderr,
               "tutti: rank %d: %lld works of functional collectives were never waited for; use their results or "
               "wait_tensor() them\n",
               rank, static_cast<long long>(count));
}

// Every registry of the process, to find works of other ranks. Never destroyed: ranks may end after all statics.
struct AllRegistries {
  const ForkGuard process;
  std::mutex mutex;
  std::vector<WorkRegistry*> list;
  std::atomic<int64_t> works{0};  // registered in all of them
  // Works of ranks that ended without destroy_process_group(). What a work belongs to ends with its rank, in no order:
  // such works are never destroyed.
  std::vector<std::shared_ptr<void>> leaked;

  static AllRegistries& instance() {
    static AllRegistries* all = new AllRegistries;
    return *all;
  }
};

// The context of a process that is one rank is never destroyed; its works are counted here and leaked, because what
// they belong to may be gone.
void warn_at_exit() {
  AllRegistries& all = AllRegistries::instance();
  std::unique_lock lock(all.mutex, std::try_to_lock);
  if (!lock && all.process.is_in_child()) return;  // nobody may be left who would release it
  if (!lock) lock.lock();
  int64_t count = 0;
  for (const WorkRegistry* registry : all.list) count += registry->unwaited();
  if (count > 0) warn(RankContext::current().rank(), count);
}

bool same(const Work& a, const Work& b) { return a.state() == b.state(); }

}  // namespace

WorkRegistry& WorkRegistry::current() { return RankContext::current().slot<WorkRegistry>(); }

WorkRegistry::WorkRegistry() : rank_(RankContext::current().rank()), sweep_at_(kSweepEntries) {
  static const int registered = std::atexit(warn_at_exit);
  static_cast<void>(registered);
  AllRegistries& all = AllRegistries::instance();
  const std::lock_guard lock(all.mutex);
  all.list.push_back(this);
}

WorkRegistry::~WorkRegistry() {
  AllRegistries& all = AllRegistries::instance();
  const std::lock_guard lock(all.mutex);
  std::erase(all.list, this);
  if (const int64_t count = unwaited(); count > 0) warn(rank_, count);
  all.works -= size();
  if (!entries_.empty()) all.leaked.push_back(std::make_shared<decltype(entries_)>(std::move(entries_)));
}

void WorkRegistry::end() {
  if (const int64_t count = unwaited(); count > 0) warn(rank_, count);
  decltype(entries_) ended;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  ended.swap(entries_);
  for (const auto& [key, entry] : ended) AllRegistries::instance().works -= static_cast<int64_t>(entry.works.size());
}

void WorkRegistry::add(const StorageRef& storage, const Work& work, bool wants_wait) {
  std::vector<Entry> swept;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  if (entries_.size() >= sweep_at_ || bytes_since_sweep_ >= kSweepBytes) swept = sweep();
  Entry& entry = entries_[storage.get()];
  if (!entry.storage) {
    entry.storage = storage;
    bytes_since_sweep_ += storage->nbytes();
  }
  entry.wants_wait |= wants_wait;
  if (std::any_of(entry.works.begin(), entry.works.end(), [&](const Work& known) { return same(known, work); })) return;
  entry.works.push_back(work);
  ++AllRegistries::instance().works;
}

// Takes out the entries whose works have all succeeded: a wait for them would find nothing to do.
std::vector<WorkRegistry::Entry> WorkRegistry::sweep() {
  std::vector<Entry> done;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool succeeded = std::all_of(it->second.works.begin(), it->second.works.end(),
                                       [](const Work& work) { return work.status() == WorkStatus::completed; });
    if (!succeeded) {
      ++it;
      continue;
    }
    AllRegistries::instance().works -= static_cast<int64_t>(it->second.works.size());
    done.push_back(std::move(it->second));
    it = entries_.erase(it);
  }
  bytes_since_sweep_ = 0;
  sweep_at_ = std::max(kSweepEntries, 2 * entries_.size());
  return done;
}

std::vector<Work> WorkRegistry::find(const Storage& storage) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(&storage);
  return found == entries_.end() ? std::vector<Work>() : found->second.works;
}

void WorkRegistry::remove(std::span<const Work> works) {
  std::vector<Entry> removed;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    std::vector<Work>& list = it->second.works;
    const auto kept = std::stable_partition(list.begin(), list.end(), [&](const Work& known) {
      return std::none_of(works.begin(), works.end(), [&](const Work& work) { return same(known, work); });
    });
    const bool is_done = kept == list.begin();
    if (kept != list.end()) {
      AllRegistries::instance().works -= list.end() - kept;
      removed.push_back({.storage = it->second.storage,
                         .works = {std::make_move_iterator(kept), std::make_move_iterator(list.end())}});
      list.erase(kept, list.end());
    }
    it = is_done ? entries_.erase(it) : std::next(it);
  }
}

int64_t WorkRegistry::size() const {
  const std::lock_guard lock(mutex_);
  int64_t count = 0;
  for (const auto& [key, entry] : entries_) count += static_cast<int64_t>(entry.works.size());
  return count;
}

int64_t WorkRegistry::unwaited() const {
  if (process_.is_in_child()) return 0;
  const std::lock_guard lock(mutex_);
  int64_t count = 0;
  for (const auto& [key, entry] : entries_) {
    if (!entry.wants_wait) continue;
    count += std::count_if(entry.works.begin(), entry.works.end(), [](const Work& work) {
      return work.status() == WorkStatus::in_progress || work.status() == WorkStatus::completed;
    });
  }
  return count;
}

// ---- by tensor ------------------------------------------------------------------------------------------------------

namespace {

// Calls visit(registry, works) for the registry that knows the storage: the current rank's, else any other's.
template <class Visit>
void with_works(const Storage& storage, Visit visit) {
  AllRegistries& all = AllRegistries::instance();
  if (all.works.load(std::memory_order_acquire) == 0) return;
  WorkRegistry& own = WorkRegistry::current();
  if (const std::vector<Work> works = own.find(storage); !works.empty()) {
    visit(works);
    return;
  }
  std::vector<Work> works;
  {
    const std::lock_guard lock(all.mutex);
    for (const WorkRegistry* registry : all.list) {
      if (works = registry->find(storage); !works.empty()) break;
    }
  }
  if (!works.empty()) visit(works);
}

// Whoever reads a storage on the host waits for its works.
class WorksWriter final : public PendingWriter {
 public:
  static WorksWriter& instance() {
    static WorksWriter writer;
    return writer;
  }
  // The works stay registered until they have ended: a second thread that asks meanwhile has to wait as well.
  void wait(Storage& storage) override {
    with_works(storage, [&](const std::vector<Work>& works) {
      for (const Work& work : works) work.wait();
      // Wherever they are: the rank that registered them may have ended meanwhile.
      AllRegistries& all = AllRegistries::instance();
      const std::lock_guard lock(all.mutex);
      for (WorkRegistry* registry : all.list) registry->remove(works);
    });
    bool any = false;
    with_works(storage, [&](const std::vector<Work>&) { any = true; });
    if (!any) storage.set_pending(nullptr);
  }
};

}  // namespace

void register_work(const Tensor& tensor, const Work& work, bool wants_wait) {
  WorkRegistry::current().add(tensor.storage(), work, wants_wait);
  tensor.storage()->set_pending(&WorksWriter::instance());
}

void share_works(const Tensor& from, const Tensor& to) {
  with_works(*from.storage(), [&](const std::vector<Work>& works) {
    for (const Work& work : works) register_work(to, work, to.storage()->nbytes() > 0);
  });
}

bool has_works(const Tensor& tensor) {
  bool any = false;
  with_works(*tensor.storage(), [&](const std::vector<Work>&) { any = true; });
  return any;
}

void wait_works(const Tensor& tensor) {
  const StorageRef storage = tensor.storage();
  WorksWriter::instance().wait(*storage);
}

}  // namespace tutti::comm::functional
