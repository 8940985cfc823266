#include "tutti/runtime/rank_context.h"

#include <cstdlib>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/host.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

thread_local RankContext* current_context = nullptr;

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

RankContext::RankContext(const Options& options) : options_(options), allocator_(Allocator::create()) {}
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
  if (!current_context) [[unlikely]] current_context = &process_default();
  return *current_context;
}

RankContext& RankContext::process_default() {
  static RankContext* context = new RankContext({});  // outlives every static that holds a tensor
  return *context;
}

RankContext::Scope::Scope(RankContext& context) : previous_(std::exchange(current_context, &context)) {}
RankContext::Scope::~Scope() { current_context = previous_; }

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
