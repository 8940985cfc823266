#include "tutti/runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/core/even_split.h"
#include "tutti/runtime/boundary.h"
#include "tutti/runtime/fp_environment.h"
#include "tutti/runtime/inherited_flags.h"
#include "tutti/runtime/launch_size.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/trace_recorder.h"

namespace tutti {
namespace {

thread_local bool inside_loop = false;

// A worker looks for the next loop, and a caller for the last worker, for a fraction of a millisecond before it sleeps:
// models call loops microseconds apart, and a wake-up through the kernel costs 10 to 25 us. After the first looks it
// offers the core to others, such as other ranks, before each; an idle pool sleeps.
constexpr int kSpins = 1000, kYields = 400;

template <class IsDue>
void wait_awake(IsDue is_due) {
  for (int i = 0; i < kSpins; ++i) {
    if (is_due()) return;
    __builtin_ia32_pause();
  }
  for (int i = 0; i < kYields && !is_due(); ++i) sched_yield();
}

// What a worker's events say while it runs a loop of this thread.
TraceContext context_for_workers() {
  TraceContext context = TraceContext::current();
  if (context.origin == 0) context.origin = trace_thread_id();
  return context;
}

// While it lives, threads start with signals from outside blocked: those are for the threads of the program, which may
// wait for them (a launcher does). What a thread causes itself stays its own.
class SignalsForOthers {
 public:
  SignalsForOthers() {
    sigset_t outside;
    sigfillset(&outside);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGPROF}) sigdelset(&outside, own);
    pthread_sigmask(SIG_BLOCK, &outside, &before_);
  }
  ~SignalsForOthers() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsForOthers(const SignalsForOthers&) = delete;
  SignalsForOthers& operator=(const SignalsForOthers&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

struct ThreadPool::Job {
  FunctionRef<void(int64_t, int64_t)> body;
  RankContext* context;
  TraceContext trace;
  uint32_t flags;  // InheritedFlags of the caller
  int64_t n, chunks;
  std::atomic<int64_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;
};

ThreadPool::ThreadPool(int threads) {
  const SignalsForOthers blocked;
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { worker_loop(); });
  } catch (const std::system_error& e) {
    const size_t started = workers_.size();
    stop();  // a joinable thread must not be destroyed
    throw EnvironmentError(fmt::format("thread pool: {} of {} workers started, then: {}; ask for fewer threads",
                                       started, threads - 1, e.what()));
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    published_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

ThreadPool& ThreadPool::current() { return RankContext::current().pool(); }

bool ThreadPool::is_inside_loop() { return inside_loop; }

// The caller attends to the rest of its rank between chunks; workers belong to the loop alone.
void ThreadPool::run_chunks(Job& job, bool passes_boundaries) {
  const bool was_inside = std::exchange(inside_loop, true);
  const EvenSplit split = EvenSplit::into(job.n, job.chunks);
  for (;;) {
    const int64_t chunk = job.next.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= job.chunks) break;
    try {
      job.body(split.begin(chunk), split.begin(chunk + 1));
    } catch (...) {
      std::lock_guard lock(job.error_mutex);
      if (!job.error) job.error = std::current_exception();
    }
    if (passes_boundaries) Boundary::pass();
  }
  inside_loop = was_inside;
}

void ThreadPool::worker_loop() {
  set_fp_environment();
  uint64_t seen = 0;
  for (;;) {
    wait_awake([&] { return published_.load(std::memory_order_acquire) != seen; });
    Job* job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
      job = job_;
      if (job == nullptr) continue;  // the loop ended before this worker came
      ++active_;
    }
    {
      const RankContext::Scope scope(*job->context);
      const TraceContextScope trace(job->trace);
      const InheritedFlags::Scope flags(job->flags);
      run_chunks(*job, false);
    }
    std::lock_guard lock(mutex_);
    if (--active_ == 0) done_.notify_all();
  }
}

void ThreadPool::parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t pieces = std::min<int64_t>(n / grain, threads());
  if (pieces <= 1 || inside_loop) {
    body(0, n);
    return;
  }
  std::lock_guard call(call_mutex_);
  // A few chunks per thread even out threads that were preempted; chunks of one size let threads end together.
  const GridLimits limits{.processors = threads(), .blocks_per_processor = 4};
  Job job{.body = body,
          .context = &RankContext::current(),
          .trace = context_for_workers(),
          .flags = InheritedFlags::current(),
          .n = n,
          .chunks = launch_blocks(n / grain, 1, limits, GridCap::always)};
  {
    std::lock_guard lock(mutex_);
    job_ = &job;
    published_.store(++generation_, std::memory_order_release);
  }
  wake_.notify_all();
  run_chunks(job, true);
  {
    std::lock_guard lock(mutex_);
    job_ = nullptr;  // nobody else joins
  }
  wait_awake([&] { return active_.load(std::memory_order_acquire) == 0; });
  {
    // Also when the spin saw 0: the last worker may still hold the lock.
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return active_ == 0; });
  }
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace tutti
