// RankContext: all state that belongs to one rank, so that ranks can be threads of one process.
//
// A thread_local pointer refers to the context of the running thread; pool tasks, backward and callbacks inherit it.
// Higher libraries keep their per-rank state in typed slots, so that this header does not depend on them. Only the
// kernel cache and the op table are process-wide.
//
// A fork()ed child has another default context, with the number of threads, the seed and the grain of the context that
// called fork(), and without its slots: it is no rank of its parent's job.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <typeindex>

namespace tutti {

class Allocator;
class ThreadPool;

class RankContext {
 public:
  struct Options {
    int rank = 0;
    int world_size = 1;
    int threads = 0;  // 0: TUTTI_THREADS, else the number of cores this process may use
  };

  explicit RankContext(const Options& options);
  ~RankContext();
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  // The context of this thread: the innermost Scope, else the process's default context. In a fork()ed child, scopes of
  // the parent do not count.
  static RankContext& current();
  static RankContext& process_default();

  // Makes `context` current on this thread while it lives.
  class Scope {
   public:
    explicit Scope(RankContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    RankContext* previous_;
  };

  int rank() const { return options_.rank; }
  int world_size() const { return options_.world_size; }
  Allocator& allocator() { return *allocator_; }
  ThreadPool& pool();  // created on first use
  // How many threads of this rank there are for loops: those of the pool, or 1 before it is created.
  int live_threads() const { return live_threads_.load(std::memory_order_relaxed); }
  void set_threads(int threads);  // 0: the default; must not be called while a loop is running

  // The root seed of this rank's random numbers (see seed_all) and the ordinal of the next anonymous draw.
  uint64_t seed = 0;
  std::atomic<uint64_t> next_draw{0};
  // Counters of this rank since it began, for those who compare layouts: floating-point operations of matrix
  // products, attention included, and bytes that transports were given for other ranks.
  std::atomic<int64_t> product_flops{0}, sent_bytes{0};
  // The token_grain() of this rank (ops/sum_to.h); 0: that of the process's default context.
  std::atomic<int64_t> token_grain{0};

  // The T of this rank, created on first use; its constructor may access other slots. For higher libraries.
  template <class T>
  T& slot() {
    return *static_cast<T*>(entry<T>().get());
  }
  // The same with shared ownership, for objects that may outlive this context or are used by another slot, because
  // slots are destroyed in no particular order.
  template <class T>
  std::shared_ptr<T> share_slot() {
    return std::static_pointer_cast<T>(entry<T>());
  }

 private:
  std::unique_ptr<RankContext> for_child() const;
  template <class T>
  const std::shared_ptr<void>& entry() {
    std::lock_guard lock(slots_mutex_);
    std::shared_ptr<void>& made = slots_[typeid(T)];
    if (!made) made = std::make_shared<T>();
    return made;
  }
  Options options_;
  Allocator* allocator_;
  std::mutex pool_mutex_;
  std::unique_ptr<ThreadPool> pool_;
  std::atomic<int> live_threads_{1};
  std::recursive_mutex slots_mutex_;
  std::map<std::type_index, std::shared_ptr<void>> slots_;
};

// Resets every random stream of this rank to `seed`. Use the same seed on every rank: the rank enters a draw only
// if a shard-local one is requested.
void seed_all(uint64_t seed);

}  // namespace tutti
