// Ranks that share memory: when one that waits may spin.
#include "tutti/comm/shm/shm_watch.h"

#include <gtest/gtest.h>

#include "tutti/runtime/host.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::comm {
namespace {

constexpr uint32_t kLong = 16;  // as after a call whose blocks the kernel copied

bool spins(int ranks, int threads, bool has_pool) {
  RankContext context({.world_size = ranks, .threads = threads});
  const RankContext::Scope scope(context);
  if (has_pool) context.pool();
  ShmWatch watch(Segment::create(ranks, 4096), 0, true, ranks, {}, {});
  watch.begin_wait();
  EXPECT_EQ(watch.spins(0, 1), watch.spins(0, kLong)) << "a long wait begins like a short one";
  return watch.spins(0, kLong);
}

TEST(ShmWatch, SpinsOnlyWhereAllThreadsOfAllRanksHaveCores) {
  const int cores = usable_cores();
  for (int ranks = 1; ranks <= cores + 1; ++ranks) {
    for (int threads = 1; threads <= cores + 1; ++threads) {
      EXPECT_EQ(spins(ranks, threads, true), ranks * threads <= cores)
          << ranks << " ranks of " << threads << " threads on " << cores << " cores";
      EXPECT_EQ(spins(ranks, threads, false), ranks <= cores)
          << ranks << " ranks whose threads have not started, on " << cores << " cores";
    }
  }
}

TEST(ShmWatch, LooksAtTheThreadsOfEachWait) {
  const int cores = usable_cores();
  RankContext context({.threads = 1});
  const RankContext::Scope scope(context);
  ShmWatch watch(Segment::create(cores, 4096), 0, true, cores, {}, {});
  context.pool();
  watch.begin_wait();
  EXPECT_TRUE(watch.spins(0, 1));
  context.set_threads(2);
  context.pool();
  watch.begin_wait();
  EXPECT_FALSE(watch.spins(0, 1));
  context.set_threads(1);
  watch.begin_wait();
  EXPECT_TRUE(watch.spins(0, 1));
}

}  // namespace
}  // namespace tutti::comm
