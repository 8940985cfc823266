// Threads of connections, and what becomes of tasks when the system gives none.
#include "tutti/generate/serve/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <system_error>

namespace tutti::generate::serve {
namespace {

// Starts `most` threads, and fails then.
WorkerPool::Start starts_only(int most) {
  return [left = most](const std::function<void()>& fn) mutable {
    if (left-- <= 0) throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    return std::thread(fn);
  };
}

TEST(WorkerPool, RunsEveryTaskWhenThreadsAreFew) {
  std::atomic<int> done = 0;
  WorkerPool pool(8, starts_only(1));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(pool.add([&] { ++done; }));
  pool.join();
  EXPECT_EQ(done, 100);
}

TEST(WorkerPool, DropsATaskWhenNoThreadExists) {
  int done = 0, left = 0;
  WorkerPool pool(8, [&](const std::function<void()>& fn) { return starts_only(left)(fn); });
  EXPECT_FALSE(pool.add([&] { done += 1; }));
  left = 1;
  EXPECT_TRUE(pool.add([&] { done += 10; }));
  pool.join();
  EXPECT_EQ(done, 10);
}

}  // namespace
}  // namespace tutti::generate::serve
