#include "tutti/runtime/fork_guard.h"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <vector>

#include "tutti/core/error.h"

namespace tutti {

ForkGuard::ForkGuard() : owner_(getpid()) {
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks_.fetch_add(1, std::memory_order_relaxed); });
  made_ = forks_.load(std::memory_order_relaxed);
}

std::string ForkGuard::text(std::string_view what) const {
  return fmt::format(
      "{} belongs to process {}, and this is its fork()ed child {}, which must not use it: make another one in the "
      "child, or start a "
      "program there with exec()",
      what, owner_, getpid());
}

void ForkGuard::keep(std::shared_ptr<const void> object) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<const void>>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(object));
}

void ForkGuard::check(std::string_view what) const {
  if (is_in_child()) throw UsageError(text(what));
}

}  // namespace tutti
