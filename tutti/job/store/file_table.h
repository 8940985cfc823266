// The table that a store's file describes, as one process sees it. Private to FileStore.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "tutti/job/store/file_log.h"
#include "tutti/job/store/file_store.h"
#include "tutti/job/store/key_table.h"
#include "tutti/job/store/wire.h"
#include "tutti/runtime/fork_guard.h"

namespace tutti::comm {

// Any thread may call it.
class FileStore::Shared {
 public:
  Shared(std::string path, int64_t world_size, std::chrono::milliseconds timeout);
  ~Shared();

  // The kind of a change, which precedes it in the file; the bodies are those of the requests in wire.h.
  enum class Change : uint8_t { kJoin = 1, kQuit, kSet, kAppend, kDelete, kMultiSet, kArrive, kLeave };
  static WireWriter change(Change kind);

  // The operations of fn while it holds the file.
  class Access {
   public:
    KeyTable& table() { return shared_.table_; }
    // Applies the change to the table and writes it to the file; UsageError leaves both as they are.
    void commit(std::string frame) { shared_.commit(frame); }
    // Also says which round the arrival belongs to.
    std::shared_ptr<BarrierRound> arrive(std::string_view key, int64_t world_size);

   private:
    friend class Shared;
    explicit Access(Shared& shared) : shared_(shared) {}
    Shared& shared_;
  };

  // fn(access) with the file locked and read to its end.
  template <class Fn>
  auto with_file(const StoreDeadline& deadline, const Fn& fn) {
    check_process();
    const std::lock_guard guard(mutex_);
    const FileLog::Lock lock(*log_, deadline);
    read_new();
    Access access(*this);
    return fn(access);
  }
  // Calls try_once(access) now and after each change of the file, until it says true (then true) or the deadline has
  // passed (false).
  template <class Try>
  bool wait(const StoreDeadline& deadline, const Try& try_once) {
    // Another process may hold the file just when the time is over.
    const StoreDeadline lock_deadline = deadline.later(std::chrono::seconds(5));
    while (true) {
      uint64_t seen = 0;
      const auto look = [&](Access& access) {
        const bool done = try_once(access);
        seen = changes_;
        return done;
      };
      if (with_file(lock_deadline, look)) return true;
      if (!wait_for_change(seen, deadline)) return false;
    }
  }

  const std::string& path() const { return path_; }

 private:
  void check_process() const;  // UsageError in a fork()ed child, which has the parent's lock and its place in the file
  void read_new();
  void commit(const std::string& frame);
  void apply(uint8_t code, std::string_view body);
  // Until there is more than the `seen` changes, whichever thread or process made them. False when the deadline passed
  // first.
  bool wait_for_change(uint64_t seen, const StoreDeadline& deadline);

  const ForkGuard process_;
  std::mutex mutex_;
  const std::string path_;
  const int64_t world_size_;
  std::unique_ptr<FileLog> log_;
  KeyTable table_;
  std::shared_ptr<BarrierRound> last_round_;  // of the newest arrival
  uint64_t changes_ = 0;                      // applied by this process so far
  int64_t joined_ = 0;
  int64_t quit_ = 0;
};

}  // namespace tutti::comm
