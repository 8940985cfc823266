#include "tutti/runtime/rank_context.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "tutti/core/error.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/fork_guard.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

struct Counter {
  int value = 0;
};
struct NeedsCounter {
  int seen = RankContext::current().slot<Counter>().value;
};

TEST(RankContext, IsTheProcessDefaultWithoutAScope) {
  EXPECT_EQ(RankContext::current().rank(), 0);
  EXPECT_EQ(RankContext::current().world_size(), 1);
  RankContext* elsewhere = nullptr;
  std::thread([&] { elsewhere = &RankContext::current(); }).join();
  EXPECT_EQ(elsewhere, &RankContext::current());
}

TEST(RankContext, ScopesNestAndBelongToTheirThread) {
  RankContext a({.rank = 1, .world_size = 3}), b({.rank = 2, .world_size = 3});
  RankContext::Scope outer(a);
  {
    RankContext::Scope inner(b);
    EXPECT_EQ(RankContext::current().rank(), 2);
    int rank_elsewhere = -1;
    std::thread([&] { rank_elsewhere = RankContext::current().rank(); }).join();
    EXPECT_EQ(rank_elsewhere, 0);
  }
  EXPECT_EQ(RankContext::current().rank(), 1);
}

TEST(RankContext, HasOneSlotOfEachType) {
  RankContext a({}), b({});
  a.slot<Counter>().value = 7;
  EXPECT_EQ(a.slot<Counter>().value, 7);
  EXPECT_EQ(b.slot<Counter>().value, 0);
}

TEST(RankContext, ASlotMayAskForAnotherWhenItIsMade) {
  RankContext context({});
  RankContext::Scope scope(context);
  context.slot<Counter>().value = 3;
  EXPECT_EQ(context.slot<NeedsCounter>().seen, 3);
}

TEST(RankContext, ASlotIsMadeOnceByManyThreads) {
  struct Made {
    Made() { ++count(); }
    static std::atomic<int>& count() {
      static std::atomic<int> n{0};
      return n;
    }
  };
  RankContext context({});
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { context.slot<Made>(); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(Made::count(), 1);
}

TEST(RankContext, SlotsEndWithTheirContext) {
  struct Watched {
    std::shared_ptr<int> alive;
  };
  auto token = std::make_shared<int>(0);
  {
    RankContext context({});
    context.slot<Watched>().alive = token;
    EXPECT_EQ(token.use_count(), 2);
  }
  EXPECT_EQ(token.use_count(), 1);
}

TEST(RankContext, CanChangeItsNumberOfThreads) {
  RankContext context({.threads = 2});
  EXPECT_EQ(context.pool().threads(), 2);
  context.set_threads(3);
  EXPECT_EQ(context.pool().threads(), 3);
  EXPECT_THROW(context.set_threads(-1), UsageError);
  EXPECT_EQ(context.pool().threads(), 3);
}

TEST(RankContext, TakesTheNumberOfThreadsFromTheEnvironment) {
  setenv("TUTTI_THREADS", "5", 1);
  EXPECT_EQ(RankContext({}).pool().threads(), 5);
  EXPECT_EQ(RankContext({.threads = 2}).pool().threads(), 2);
  unsetenv("TUTTI_THREADS");
}

TEST(RankContext, RefusesAMalformedNumberOfThreads) {
  for (const char* text : {"", "x", "0", "-1", "2x", "99999"}) {
    setenv("TUTTI_THREADS", text, 1);
    try {
      RankContext({}).pool();
      ADD_FAILURE() << text;
    } catch (const UsageError& e) {
      EXPECT_NE(std::string(e.what()).find(std::string("TUTTI_THREADS is '") + text), std::string::npos) << e.what();
    }
  }
  unsetenv("TUTTI_THREADS");
}

TEST(RankContext, ABlockMayOutliveItsContext) {
  Allocator* allocator = nullptr;
  void* block = nullptr;
  {
    RankContext context({});
    allocator = &context.allocator();
    block = allocator->allocate(100, MemoryCategory::data);
  }
  *static_cast<char*>(block) = 1;
  allocator->deallocate(block, 100, MemoryCategory::data);
  EXPECT_EQ(allocator->statistics().current_bytes, 0);
  allocator->release_cached();
}

TEST(RankContext, GivesItsCachedMemoryBackWhenItEnds) {
  Allocator* allocator = nullptr;
  {
    RankContext context({});
    allocator = &context.allocator();
    allocator->deallocate(allocator->allocate(1 << 20, MemoryCategory::data), 1 << 20, MemoryCategory::data);
    EXPECT_GT(allocator->statistics().reserved_bytes, 0);
  }
  EXPECT_EQ(allocator->statistics().reserved_bytes, 0);
}

TEST(SeedAll, ResetsTheStreamsOfThisRankOnly) {
  RankContext a({}), b({});
  b.seed = 1;
  b.next_draw = 9;
  RankContext::Scope scope(a);
  a.next_draw = 5;
  seed_all(42);
  seed_all(42);
  EXPECT_EQ(a.seed, 42u);
  EXPECT_EQ(a.next_draw, 0u);
  EXPECT_EQ(b.seed, 1u);
  EXPECT_EQ(b.next_draw, 9u);
}

// Runs `fn` in a child; whether it returned true.
bool in_child(const std::function<bool()>& fn) {
  const pid_t child = fork();
  if (child == 0) _exit(fn() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0;
}

TEST(RankContext, AForkedChildHasOneOfItsOwn) {
  struct Mine {
    int value = 1;
  };
  RankContext context({.rank = 3, .world_size = 5, .threads = 2});
  const RankContext::Scope scope(context);
  seed_all(17);
  context.next_draw = 4;
  context.token_grain = 64;
  context.slot<Mine>().value = 2;
  context.pool();
  EXPECT_TRUE(in_child([&] {
    RankContext& own = RankContext::current();
    const bool is_fresh = &own != &context && &own == &RankContext::process_default() && own.rank() == 0 &&
                          own.world_size() == 1 && own.slot<Mine>().value == 1;
    const bool goes_on = own.seed == 17 && own.next_draw == 4 && own.token_grain == 64 && own.pool().threads() == 2;
    const bool again = in_child([&] {
      return &RankContext::current() != &own && RankContext::current().seed == 17 &&
             RankContext::current().pool().threads() == 2;
    });
    return is_fresh && goes_on && again;
  }));
  EXPECT_EQ(&RankContext::current(), &context);
}

TEST(RankContext, AForkedChildDoesNotReturnToItsParentsScopes) {
  RankContext outer({.rank = 1, .world_size = 3}), inner({.rank = 2, .world_size = 3}),
      own({.rank = 5, .world_size = 7});
  const RankContext::Scope scope(outer);
  std::optional<RankContext::Scope> innermost(std::in_place, inner);
  EXPECT_TRUE(in_child([&] {
    bool nests = true;
    {
      const RankContext::Scope mine(own);
      nests = &RankContext::current() == &own;
    }
    nests = nests && &RankContext::current() == &RankContext::process_default();
    innermost.reset();
    return nests && &RankContext::current() == &RankContext::process_default();
  }));
  innermost.reset();
  EXPECT_EQ(&RankContext::current(), &outer);
}

// The children drop what they have inherited, whatever other threads were doing when they were made.
TEST(RankContext, ForkedChildrenWaitForNoThreadOfTheirParent) {
  Allocator& allocator = RankContext::current().allocator();
  std::atomic<bool> stops{false};
  std::thread other([&] {
    while (!stops)
      allocator.deallocate(allocator.allocate(1 << 12, MemoryCategory::activations), 1 << 12,
                           MemoryCategory::activations);
  });
  int ended = 0;
  for (int i = 0; i < 300; ++i) {
    void* block = allocator.allocate(1 << 12, MemoryCategory::activations);
    ended += in_child([&] {
      alarm(20);
      allocator.deallocate(block, 1 << 12, MemoryCategory::activations);
      Allocator& mine = RankContext::current().allocator();
      mine.deallocate(mine.allocate(1 << 12, MemoryCategory::activations), 1 << 12, MemoryCategory::activations);
      return &mine != &allocator;
    });
    allocator.deallocate(block, 1 << 12, MemoryCategory::activations);
  }
  stops = true;
  other.join();
  EXPECT_EQ(ended, 300);
}

TEST(ForkGuard, KnowsTheChildAndItsChildren) {
  const ForkGuard before;
  before.check("this");
  EXPECT_TRUE(in_child([&] {
    const ForkGuard own;
    const bool refuses = before.is_in_child() && !own.is_in_child();
    try {
      before.check("the object");
      return false;
    } catch (const UsageError& error) {
      return refuses && error.what() == before.text("the object") &&
             in_child([&] { return before.is_in_child() && own.is_in_child(); });
    }
  }));
  EXPECT_FALSE(before.is_in_child());
  EXPECT_EQ(before.text("group 'dp'"), fmt::format("group 'dp' belongs to process {}, and this is its fork()ed child "
                                                   "{}, which must not use it: make another one in the child, "
                                                   "or start a program there with exec()",
                                                   getpid(), getpid()));
}

}  // namespace
}  // namespace tutti
