// Ranks that measure apart and choose alike.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/codegen/choice/engine.h"
#include "tutti/comm/run_ranks.h"

namespace tutti::comm {
namespace {

using namespace codegen::choice;  // NOLINT: this test is about that namespace

TEST(ChoiceOverRanks, FollowsRankZero) {
  constexpr int kRanks = 3;
  std::vector<int> alone(kRanks), together(kRanks);
  std::vector<int64_t> measured(kRanks);
  run_ranks(kRanks, [&](ProcessGroup& group) {
    const size_t rank = static_cast<size_t>(group.rank());
    ChoiceEngine<int> engine([](const BucketKey&) { return std::vector<int>{0, 1, 2, 3}; },
                             {.predicates = {},
                              .classify = [](const int&, const Signature&) { return 0; },
                              .cost = [](const int& candidate, const Signature&) { return candidate; },
                              .name = [](const int& candidate) { return std::to_string(candidate); }},
                             {.mode = ChoiceMode::measure});
    const Signature first{.op = "first", .operands = {}, .epilogue = {}},
        second{.op = "second", .operands = {}, .epilogue = {}};
    // On every rank another candidate is the fastest.
    const auto run = [&](const int& candidate) { return candidate == group.rank() + 1 ? 1.0 : 2.0; };
    alone[rank] = engine.choose(first, run);
    measured[rank] = -engine.statistics().measured;
    const ExchangeWinner exchange = [&](const std::function<std::string()>& mine) {
      return group.broadcast_bytes(group.rank() == 0 ? mine() : "", 0);
    };
    together[rank] = engine.adopt(second, run, exchange);
    EXPECT_EQ(engine.choose(second, run), together[rank]);
    measured[rank] += engine.statistics().measured;
  });
  EXPECT_EQ(alone, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(together, (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(measured, (std::vector<int64_t>{4, 0, 0}));  // only rank 0 runs candidates
}

}  // namespace
}  // namespace tutti::comm
