#include "tutti/codegen/choice/memo_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tutti/core/hash.h"

namespace tutti::codegen::choice {
namespace {

Signature key_of(int64_t m) {
  Signature key{.op = "test", .operands = {}, .epilogue = {}};
  key.operands[0].sizes[0] = m;
  return key;
}

TEST(MemoTable, MakesAValueOnce) {
  MemoTable<int> table(10);
  EXPECT_FALSE(table.find(key_of(1)));
  EXPECT_EQ(table.get(key_of(1), [] { return 7; }), 7);
  EXPECT_EQ(table.get(key_of(1), [] { return 8; }), 7);
  EXPECT_EQ(table.find(key_of(1)), 7);
}

TEST(MemoTable, CallsWhoseHashesCollideHaveValuesOfTheirOwn) {
  const CollidingHashesForTests colliding;
  MemoTable<int> table(4);
  for (int round = 0; round < 2; ++round) {
    for (int m = 1; m <= 5; ++m) EXPECT_EQ(table.get(key_of(m), [m] { return m; }), m);
  }
  EXPECT_EQ(table.size(), 4);
}

TEST(MemoTable, ForgetsTheOldestBeyondItsCapacity) {
  MemoTable<int> table(2);
  for (int m = 1; m <= 3; ++m) (void)table.get(key_of(m), [m] { return m; });
  EXPECT_EQ(table.size(), 2);
  EXPECT_FALSE(table.find(key_of(1)));
  EXPECT_EQ(table.find(key_of(2)), 2);
  EXPECT_EQ(table.find(key_of(3)), 3);
}

TEST(MemoTable, OneThreadMakesWhileOthersWait) {
  MemoTable<int> table(10);
  std::atomic<int> made = 0;
  std::latch all_here(8);
  std::vector<std::thread> threads;
  std::vector<int> values(8);
  for (size_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      all_here.arrive_and_wait();
      values[t] = table.get(key_of(1), [&] { return ++made; });
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(values, std::vector<int>(8, 1));
}

TEST(MemoTable, AFailureReachesWhoWaitsAndLeavesNothing) {
  MemoTable<int> table(10);
  std::latch is_making(1), others_ask(2);
  std::atomic<int> failures = 0;
  const auto asks = [&](FunctionRef<int()> make) {
    try {
      (void)table.get(key_of(1), make);
    } catch (const std::runtime_error&) {
      ++failures;
    }
  };
  std::thread maker([&] {
    asks([&]() -> int {
      is_making.count_down();
      others_ask.wait();
      throw std::runtime_error("no memory");
    });
  });
  is_making.wait();
  std::vector<std::thread> others;
  // Whoever comes before the failure waits for it; whoever comes after it fails by itself.
  for (int t = 0; t < 2; ++t)
    others.emplace_back([&] {
      others_ask.count_down();
      asks([]() -> int { throw std::runtime_error("no memory either"); });
    });
  maker.join();
  for (std::thread& thread : others) thread.join();
  EXPECT_EQ(failures, 3);
  EXPECT_EQ(table.size(), 0);
  EXPECT_EQ(table.get(key_of(1), [] { return 5; }), 5);
}

TEST(MemoTable, DoesNotWaitWhenAskedNotTo) {
  MemoTable<int> table(10);
  std::latch is_making(1), may_end(1);
  std::thread maker([&] {
    (void)table.get(key_of(1), [&] {
      is_making.count_down();
      may_end.wait();
      return 5;
    });
  });
  is_making.wait();
  EXPECT_EQ(table.get_unless_busy(key_of(1), [] { return 6; }), std::nullopt);
  may_end.count_down();
  maker.join();
  EXPECT_EQ(table.get_unless_busy(key_of(1), [] { return 6; }), 5);
}

TEST(MemoTable, AValuePutMeanwhileStays) {
  MemoTable<int> table(10);
  EXPECT_EQ(table.get(key_of(1), [&] { return table.put(key_of(1), 9), 5; }), 9);
  EXPECT_EQ(table.find(key_of(1)), 9);
}

TEST(MemoTable, RefusesAValueThatNeedsItself) {
  MemoTable<int> table(10);
  EXPECT_THROW((void)table.get(key_of(1), [&] { return table.get(key_of(1), [] { return 5; }); }), UsageError);
  EXPECT_EQ(table.size(), 0);
}

}  // namespace
}  // namespace tutti::codegen::choice
