#include "tutti/runtime/thread_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <barrier>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

std::vector<int> visits_of(ThreadPool& pool, int64_t n, int64_t grain) {
  std::vector<int> visits(static_cast<size_t>(n), 0);
  pool.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
  });
  return visits;
}

// Whoever takes a chunk more than another ends at most one index later for it.
TEST(ThreadPool, ChunksDifferByOneIndexAtMostAndHoldAGrain) {
  for (const int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    for (const int64_t n : {int64_t{22}, int64_t{43}, int64_t{1000}, int64_t{4099}, INT64_MAX}) {
      for (const int64_t grain : {1, 3, 7}) {
        std::mutex mutex;
        std::set<int64_t> sizes;
        pool.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          const std::lock_guard lock(mutex);
          sizes.insert(end - begin);
        });
        EXPECT_LE(*sizes.rbegin() - *sizes.begin(), 1) << threads << " threads, n " << n << ", grain " << grain;
        EXPECT_GE(*sizes.begin(), grain) << threads << " threads, n " << n << ", grain " << grain;
      }
    }
  }
}

TEST(ThreadPool, CoversEveryIndexExactlyOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int64_t n : {1, 2, 7, 64, 1000, 4099}) {
      for (int64_t grain : {1, 3, 64, 5000}) {
        ASSERT_EQ(visits_of(pool, n, grain), std::vector<int>(static_cast<size_t>(n), 1))
            << threads << " threads, n " << n << ", grain " << grain;
      }
    }
  }
}

TEST(ThreadPool, DoesNothingForAnEmptyRange) {
  ThreadPool pool(3);
  for (int64_t n : {0, -5}) pool.parallel_for(n, 1, [](int64_t, int64_t) { FAIL(); });
}

TEST(ThreadPool, TreatsAGrainBelowOneAsOne) {
  ThreadPool pool(3);
  EXPECT_EQ(visits_of(pool, 10, 0), std::vector<int>(10, 1));
}

TEST(ThreadPool, GivesRangesNoShorterThanTheGrain) {
  ThreadPool pool(4);
  std::mutex mutex;
  std::map<int64_t, int64_t> ranges;
  pool.parallel_for(1000, 60, [&](int64_t begin, int64_t end) {
    std::lock_guard lock(mutex);
    ranges[begin] = end;
  });
  int64_t expected = 0;
  for (auto [begin, end] : ranges) {
    EXPECT_EQ(begin, expected);
    if (end != 1000) {
      EXPECT_GE(end - begin, 60);
    }
    expected = end;
  }
  EXPECT_EQ(expected, 1000);
}

TEST(ThreadPool, CoversTheLargestRange) {
  for (const int threads : {2, 3, 7}) {
    ThreadPool pool(threads);
    std::mutex mutex;
    std::map<int64_t, int64_t> ranges;
    pool.parallel_for(INT64_MAX, 1, [&](int64_t begin, int64_t end) {
      std::lock_guard lock(mutex);
      ranges[begin] = end;
    });
    int64_t expected = 0;
    for (const auto& [begin, end] : ranges) {
      EXPECT_EQ(begin, std::exchange(expected, end));
      EXPECT_LT(begin, end);
    }
    EXPECT_EQ(expected, INT64_MAX) << threads << " threads";
  }
}

TEST(ThreadPool, RunsBodiesOnSeveralThreadsAtOnce) {
  ThreadPool pool(3);
  std::barrier meeting(3);  // passes only when three threads are in the loop together
  std::mutex mutex;
  std::set<std::thread::id> seen;
  std::atomic<int> arrivals{0};
  pool.parallel_for(12, 1, [&](int64_t, int64_t) {
    {
      std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    }
    if (arrivals.fetch_add(1) < 3) meeting.arrive_and_wait();
  });
  EXPECT_EQ(seen.size(), 3u);
}

TEST(ThreadPool, RethrowsOneExceptionAfterAllRangesHaveEnded) {
  ThreadPool pool(4);
  std::atomic<int64_t> visited{0};
  try {
    pool.parallel_for(160, 1, [&](int64_t begin, int64_t end) {
      visited += end - begin;
      throw std::runtime_error("from a body");
    });
    FAIL();
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "from a body");
  }
  EXPECT_EQ(visited, 160);
}

TEST(ThreadPool, WorksAfterAnException) {
  ThreadPool pool(4);
  EXPECT_THROW(pool.parallel_for(100, 1, [](int64_t, int64_t) { throw 1; }), int);
  EXPECT_EQ(visits_of(pool, 100, 1), std::vector<int>(100, 1));
}

TEST(ThreadPool, ANestedCallRunsInline) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> visits(64 * 16);
  pool.parallel_for(64, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto outer = std::this_thread::get_id();
      pool.parallel_for(16, 1, [&](int64_t b, int64_t e) {
        EXPECT_EQ(std::this_thread::get_id(), outer);
        for (int64_t j = b; j < e; ++j) ++visits[static_cast<size_t>(i * 16 + j)];
      });
    }
  });
  for (const auto& v : visits) ASSERT_EQ(v, 1);
}

TEST(ThreadPool, TellsWhetherALoopIsSharedOut) {
  ThreadPool pool(2);
  std::atomic<int> inside = 0;
  pool.parallel_for(2, 1, [&](int64_t begin, int64_t end) {
    inside += ThreadPool::is_inside_loop() ? static_cast<int>(end - begin) : 0;
  });
  EXPECT_EQ(inside, 2);
  EXPECT_FALSE(ThreadPool::is_inside_loop());
}

TEST(ThreadPool, ANestedExceptionReachesTheOuterCaller) {
  ThreadPool pool(4);
  const auto nested = [&] {
    pool.parallel_for(
        64, 1, [&](int64_t, int64_t) { pool.parallel_for(8, 1, [](int64_t, int64_t) { throw UsageError("inner"); }); });
  };
  EXPECT_THROW(nested(), UsageError);
}

TEST(ThreadPool, ManyCallersTakeTurns) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int c = 0; c < 8; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 100; ++round) wrong += visits_of(pool, 97, 1) != std::vector<int>(97, 1);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, ShortLoopsInARowLoseNoWork) {
  ThreadPool pool(4);
  int64_t total = 0;
  for (int round = 0; round < 3000; ++round) {
    std::atomic<int64_t> sum{0};
    pool.parallel_for(8, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    total += sum;
  }
  EXPECT_EQ(total, 8 * 3000);
}

TEST(ThreadPool, IsMadeAndDestroyedWhileWorkersStart) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(4);
    if (i % 2) visits_of(pool, 16, 1);
  }
}

TEST(ThreadPool, WorkersInheritTheContextOfTheCaller) {
  RankContext context({.rank = 5, .world_size = 8, .threads = 3});
  RankContext::Scope scope(context);
  std::atomic<int> wrong{0};
  ThreadPool::current().parallel_for(64, 1, [&](int64_t, int64_t) {
    wrong += RankContext::current().rank() != 5 || &RankContext::current() != &context;
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(ThreadPool::current().threads(), 3);
}

TEST(ThreadPool, ContextsOfSeparateRanksLoopAtTheSameTime) {
  std::barrier meeting(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      RankContext context({.rank = rank, .world_size = 2, .threads = 2});
      RankContext::Scope scope(context);
      std::atomic<bool> met{false};
      ThreadPool::current().parallel_for(2, 1, [&](int64_t begin, int64_t) {
        if (begin == 0 && !met.exchange(true)) meeting.arrive_and_wait();  // inside the loop of each rank
      });
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// A worker that could take it would end the program.
TEST(ThreadPool, SignalsAreForTheThreadThatWaitsForThem) {
  ThreadPool pool(4);
  sigset_t term, before;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &term, &before), 0);
  ASSERT_EQ(kill(getpid(), SIGTERM), 0);
  const timespec limit{.tv_sec = 10, .tv_nsec = 0};
  EXPECT_EQ(sigtimedwait(&term, nullptr, &limit), SIGTERM);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which end the program when memory is short
// Ends with 0 when a pool that the system cannot serve is an EnvironmentError and leaves no thread behind.
int make_too_large_a_pool() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t limit = pages * 4096 + (rlim_t{64} << 20);  // room for a few stacks
  const rlimit memory{limit, limit};
  if (setrlimit(RLIMIT_AS, &memory) != 0) return 2;
  try {
    ThreadPool pool(1000);
  } catch (const EnvironmentError& e) {
    return std::string(e.what()).find("of 999 workers started") == std::string::npos ? 3 : 0;
  }
  return 1;
}

TEST(ThreadPoolDeathTest, MoreThreadsThanTheSystemGivesIsAnError) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::_Exit(make_too_large_a_pool()), ::testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace tutti
