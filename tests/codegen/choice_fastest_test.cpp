#include "tutti/codegen/choice/fastest.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tutti::codegen::choice {
namespace {

const ChoiceOptions kOptions{.mode = ChoiceMode::measure, .samples = 5, .budget_ms = 60'000};

TEST(Fastest, TakesTheSmallestMedian) {
  std::vector<int> calls(3);
  // The second is fast once and slow otherwise.
  const auto run = [&](size_t i) { return i == 1 && calls[i]++ == 1 ? 1.0 : std::vector{10.0, 12.0, 9.0}[i]; };
  EXPECT_EQ(fastest(3, {.samples = 3, .budget_ms = 60'000}, run), 2u);
}

TEST(Fastest, DoesNotCountTheFirstRun) {
  std::vector<int> calls(2);
  EXPECT_EQ(fastest(2, kOptions,
                    [&](size_t i) {
                      return calls[i]++ == 0 ? 1000.0 * static_cast<double>(i) : 10.0 - 5.0 * static_cast<double>(i);
                    }),
            1u);
  EXPECT_EQ(calls, (std::vector<int>{6, 6}));
}

TEST(Fastest, DropsWhatTakesTwiceAsLong) {
  std::vector<int> calls(3);
  const auto run = [&](size_t i) { return ++calls[i], std::vector{10.0, 21.0, 19.0}[i]; };
  EXPECT_EQ(fastest(3, kOptions, run), 0u);
  EXPECT_EQ(calls, (std::vector<int>{6, 2, 6}));
}

TEST(Fastest, StopsWhenTheBudgetIsSpent) {
  std::vector<size_t> ran;
  const auto run = [&](size_t i) {
    ran.push_back(i);
    for (const auto begin = std::chrono::steady_clock::now();
         std::chrono::steady_clock::now() < begin + std::chrono::milliseconds(1);) {
    }
    return 10.0 - static_cast<double>(i);
  };
  EXPECT_EQ(fastest(5, {.samples = 5, .budget_ms = 1}, run), 0u);  // the heuristic's, as none was timed
  EXPECT_EQ(ran, (std::vector<size_t>{0, 1}));                     // what the first takes is not of the budget
}

TEST(Fastest, NobodyWinsAgainstOneThatWasNotTimed) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    std::vector<int> calls(2);
    const auto run = [&](size_t i) {
      if (++calls[i] == 2 && i == 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return i == 1 ? 6.0 : 2.0;
    };
    EXPECT_EQ(fastest(2, {.samples = 5, .budget_ms = 5, .seed = seed}, run), 0u);
  }
}

TEST(Fastest, RunsNothingWhereThereIsNoChoice) {
  EXPECT_EQ(fastest(1, kOptions, [](size_t) -> double { throw std::logic_error("run"); }), 0u);
}

TEST(Fastest, TheSeedDecidesWhoseTurnItIs) {
  const auto order = [](uint64_t seed) {
    std::vector<size_t> turns;
    (void)fastest(6, {.samples = 4, .budget_ms = 60'000, .seed = seed},
                  [&](size_t i) { return turns.push_back(i), 1.0; });
    return turns;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

}  // namespace
}  // namespace tutti::codegen::choice
