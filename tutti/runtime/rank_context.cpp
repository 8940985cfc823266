#include "tutti/runtime/rank_context.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/host.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

thread_local RankContext* current_context = nullptr;
thread_local int open_scopes = 0;
thread_local int inherited_scopes = 0;               // in a fork()ed child: how many of them its parent has opened
std::atomic<RankContext*> default_context{nullptr};  // never destroyed: outlives every static that holds a tensor
RankContext* parents_context = nullptr;              // in a fork()ed child: that of the thread which called fork()

// Runs in the child of a fork(), in its only thread. The parent's context has threads and groups that do not exist
// here.
void leave_parents_context() {
  RankContext* const parents =
      current_context != nullptr ? current_context : default_context.load(std::memory_order_relaxed);
  if (parents != nullptr) parents_context = parents;
  current_context = nullptr;
  inherited_scopes = open_scopes;
  default_context.store(nullptr, std::memory_order_relaxed);
}

int default_threads() {
  if (const char* text = std::getenv("TUTTI_THREADS")) {
    char* end = nullptr;
    const long threads = std::strtol(text, &end, 10);
    TUTTI_CHECK(*text != '\0' && *end == '\0' && threads >= 1 && threads <= 1024,
                "TUTTI_THREADS is '{}'; expected a whole number from 1 to 1024", text);
    return static_cast<int>(threads);
  }
  return usable_cores();
}

}  // namespace

RankContext::RankContext(const Options& options) : options_(options), allocator_(Allocator::create()) {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, leave_parents_context);
}
RankContext::~RankContext() {
  // A slot may have threads that ask for other slots until it has joined them.
  while (true) {
    decltype(slots_) last;
    {
      const std::lock_guard lock(slots_mutex_);
      last.swap(slots_);
    }
    if (last.empty()) break;
  }
  // Tensors may live on; what they free later stays cached and is small beside what is free now.
  allocator_->release_cached();
}

RankContext& RankContext::current() {
  if (!current_context) [[unlikely]]
    current_context = &process_default();
  return *current_context;
}

RankContext& RankContext::process_default() {
  RankContext* context = default_context.load(std::memory_order_acquire);
  if (context != nullptr) [[likely]]
    return *context;
  auto made = parents_context == nullptr ? std::make_unique<RankContext>(Options()) : parents_context->for_child();
  if (default_context.compare_exchange_strong(context, made.get(), std::memory_order_acq_rel)) return *made.release();
  return *context;  // another thread was faster
}

std::unique_ptr<RankContext> RankContext::for_child() const {
  auto child = std::make_unique<RankContext>(Options{.threads = options_.threads});
  child->seed = seed;
  child->next_draw = next_draw.load();
  child->token_grain = token_grain.load();
  return child;
}

RankContext::Scope::Scope(RankContext& context) : previous_(std::exchange(current_context, &context)) { ++open_scopes; }
RankContext::Scope::~Scope() {
  const bool is_inherited = open_scopes == inherited_scopes;
  current_context = is_inherited ? nullptr : previous_;
  if (is_inherited) --inherited_scopes;
  --open_scopes;
}

ThreadPool& RankContext::pool() {
  std::lock_guard lock(pool_mutex_);
  if (!pool_) {
    pool_ = std::make_unique<ThreadPool>(options_.threads > 0 ? options_.threads : default_threads());
    live_threads_ = pool_->threads();
  }
  return *pool_;
}

void RankContext::set_threads(int threads) {
  TUTTI_CHECK(threads >= 0 && threads <= 1024, "set_threads: {} is not a number of threads; legal: 0 to 1024", threads);
  std::lock_guard lock(pool_mutex_);
  options_.threads = threads;
  pool_.reset();
  live_threads_ = 1;
}

void seed_all(uint64_t seed) {
  RankContext& context = RankContext::current();
  context.seed = seed;
  context.next_draw = 0;
}

}  // namespace tutti
