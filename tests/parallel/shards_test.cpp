#include "tutti/parallel/shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>

#include "tutti/autograd/use_sink.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/parallel/gradient_buckets.h"
#include "tutti/parallel/gradient_exchange.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kElements = 40;

// Values of very different size, so that every order of adding gives other bits.
float value_of(int64_t shard, int64_t parameter, int64_t use, int64_t i) {
  const uint32_t x = static_cast<uint32_t>(((shard * 7 + parameter) * 5 + use) * 977 + i * 131 + 1) * 2654435761u;
  return std::ldexp(static_cast<float>(static_cast<int32_t>(x)), static_cast<int>(x >> 27) - 50);
}

// Parameter 0 is used once, parameter 1 twice (a tied weight).
std::vector<std::vector<Tensor>> gradients_of(int64_t shard) {
  std::vector<std::vector<Tensor>> uses(2);
  for (int64_t p = 0; p < 2; ++p) {
    for (int64_t u = 0; u <= p; ++u) {
      std::vector<float> values;
      for (int64_t i = 0; i < kElements; ++i) values.push_back(value_of(shard, p, u, i));
      uses[static_cast<size_t>(p)].push_back(Tensor::of(values));
    }
  }
  return uses;
}

float plain_tree(int64_t begin, int64_t end, int64_t p, int64_t u, int64_t i) {
  if (end - begin == 1) return value_of(begin, p, u, i);
  const int64_t middle = begin + (end - begin) / 2;
  return plain_tree(begin, middle, p, u, i) + plain_tree(middle, end, p, u, i);
}

std::vector<std::vector<float>> expected(int64_t shards) {
  std::vector<std::vector<float>> grads(2);
  for (int64_t i = 0; i < kElements; ++i) {
    grads[0].push_back(plain_tree(0, shards, 0, 0, i));
    grads[1].push_back(plain_tree(0, shards, 1, 0, i) + plain_tree(0, shards, 1, 1, i));
  }
  return grads;
}

std::vector<std::vector<float>> contents(const std::vector<Tensor>& tensors) {
  std::vector<std::vector<float>> all;
  for (const Tensor& t : tensors) all.emplace_back(t.data<float>(), t.data<float>() + t.numel());
  return all;
}

// Losses of a shard, which must come out as one exact sum.
Tensor losses_of(int64_t shard) { return full({3}, std::ldexp(1.0, static_cast<int>(shard * 9) - 30)); }
double expected_loss(int64_t shards) {
  double sum = 0;
  for (int64_t s = 0; s < shards; ++s) sum += 3 * std::ldexp(1.0, static_cast<int>(s * 9) - 30);
  return sum;
}

// Parameters 0 and 1.
std::vector<Tensor> parameters() { return {zeros({kElements}), zeros({kElements})}; }

// Delivers uses as backward does: parameters and uses from the last to the first.
void deliver(Shards& shards, const UseGradients& uses) {
  for (size_t p = uses.size(); p-- > 0;) {
    for (size_t u = uses[p].size(); u-- > 0;) shards.sink()->use(static_cast<int32_t>(p), 0, uses[p][u]);
    if (!uses[p].empty()) shards.sink()->finished(static_cast<int32_t>(p));
  }
}

void add(Shards& shards, int64_t shard, const UseGradients& uses) {
  deliver(shards, uses);
  shards.add(losses_of(shard));
}

ShardSums step_of(Shards& shards) {
  for (const int64_t s : shards.local_shards()) add(shards, s, gradients_of(s));
  return shards.finish();
}

// What the UsageError says that `fn` ends with.
std::string message(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Shards, OneRankEqualsThePlainTreeAndAddsUsesLast) {
  for (const int64_t count : {1, 2, 4, 8, 32}) {
    Shards shards(count, nullptr, parameters());
    EXPECT_EQ(contents(step_of(shards).gradients), expected(count)) << count << " shards";
  }
}

// Trap: an adder that merges equal counts, or halves over ranks, differs as soon as their number is no power of two.
TEST(Shards, EveryNumberOfRanksHasTheSameBits) {
  for (const int64_t count : {4, 8, 16}) {
    for (int ranks = 1; ranks <= std::min<int64_t>(count, 8); ++ranks) {
      for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
        comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
          Shards shards(count, &group, parameters(), schedule);
          for (int step = 0; step < 2; ++step) {
            const ShardSums sums = step_of(shards);
            EXPECT_EQ(contents(sums.gradients), expected(count))
                << count << " shards, rank " << group.rank() << " of " << ranks << ", step " << step;
            EXPECT_EQ(sums.loss, expected_loss(count));
          }
          EXPECT_EQ(shards.sum(group.rank() + 1), ranks * (ranks + 1) / 2);
        });
      }
    }
  }
}

// A tree that counts instead of looking at the numbers of shards gives other bits: the test above can fail. `begins`
// are the first shards of the ranks; each rank adds its shards one by one and merges equal counts, and so do the ranks.
float counted(const std::vector<int64_t>& begins, int64_t shards, int64_t i) {
  struct Sum {
    int64_t count;
    float value;
  };
  const auto total = [](std::vector<Sum> stack) {
    while (stack.size() > 1) {
      const Sum right = stack.back();
      stack.pop_back();
      stack.back() = {stack.back().count + right.count, stack.back().value + right.value};
    }
    return stack[0];
  };
  const auto push = [](std::vector<Sum>& stack, Sum sum) {
    stack.push_back(sum);
    while (stack.size() >= 2 && stack[stack.size() - 2].count == stack.back().count) {
      const Sum right = stack.back();
      stack.pop_back();
      stack.back() = {2 * right.count, stack.back().value + right.value};
    }
  };
  std::vector<Sum> over_ranks;
  for (size_t r = 0; r < begins.size(); ++r) {
    std::vector<Sum> stack;
    for (int64_t s = begins[r]; s < (r + 1 < begins.size() ? begins[r + 1] : shards); ++s)
      push(stack, {1, value_of(s, 0, 0, i)});
    push(over_ranks, total(stack));
  }
  return total(over_ranks).value;
}

TEST(Shards, MergingEqualCountsGivesOtherBits) {
  for (const int ranks : {3, 5}) {
    std::vector<int64_t> begins;
    for (int r = 0; r < ranks; ++r) begins.push_back(shards_of_rank(8, r, ranks).begin);
    int differing = 0;
    for (int64_t i = 0; i < kElements; ++i)
      differing += counted(begins, 8, i) != expected(8)[0][static_cast<size_t>(i)];
    EXPECT_GT(differing, 0) << ranks << " ranks";
  }
  for (int64_t i = 0; i < kElements; ++i)
    EXPECT_EQ(counted({0, 2, 4, 6}, 8, i), expected(8)[0][static_cast<size_t>(i)]);
}

TEST(Shards, EveryShardRunsOnceOnSomeRank) {
  for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      std::vector<std::atomic<int>> runs(8);
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        const Shards shards(8, &group, parameters(), schedule);
        for (size_t i = 0; i < shards.local_shards().size(); ++i) {
          const int64_t s = shards.local_shards()[i];
          ++runs[static_cast<size_t>(s)];
          if (schedule == Schedule::every_round) {
            EXPECT_EQ(s, static_cast<int64_t>(i) * ranks + group.rank());
          }
        }
      });
      for (const auto& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(Shards, TheSumOfSquaresIsThatOfTheGradients) {
  for (const int ranks : {1, 3}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      Shards shards(4, &group, {zeros({2}), zeros({1})});
      for (const int64_t s : shards.local_shards())
        add(shards, s, {{Tensor::of<float>({1.0f, -2.0f})}, {Tensor::of<float>({0.5f})}});
      EXPECT_EQ(shards.finish().squares.value(), 16.0 + 64.0 + 4.0);
    });
  }
}

// A training loop that runs several backwards in a shard, such as for an auxiliary loss.
TEST(Shards, UsesOfALaterBackwardComeAfterThoseOfAnEarlierOne) {
  Shards shards(1, nullptr, {zeros({1})});
  const auto one = [](float v) { return Tensor::of<float>({v}); };
  // Program order is 1e8, 3 in the first backward, then -1e8, 4 in the second: ((1e8 + 3) - 1e8) + 4.
  shards.sink()->use(0, 0, one(3.0f));
  shards.sink()->use(0, 0, one(1e8f));
  shards.sink()->finished(0);
  shards.sink()->use(0, 0, one(4.0f));
  shards.sink()->use(0, 0, one(-1e8f));
  shards.sink()->finished(0);
  shards.add(losses_of(0));
  EXPECT_EQ(shards.finish().gradients[0].item(), static_cast<double>(((1e8f + 3.0f) - 1e8f) + 4.0f));
}

TEST(Shards, EmptyParametersAndOnesWithoutUsesTakePart) {
  for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
    for (const int ranks : {1, 3}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        Shards shards(4, &group, {Tensor::empty({0, 3}), zeros({2}), zeros({1})}, schedule);
        for (const int64_t s : shards.local_shards())
          add(shards, s, {{Tensor::empty({0, 3})}, {}, {Tensor::of<float>({1.0f})}});
        const ShardSums sums = shards.finish();
        EXPECT_EQ(sums.gradients[0].extents(), (Extents{0, 3}));
        EXPECT_FALSE(sums.gradients[1].defined());
        EXPECT_EQ(sums.gradients[2].item(), 4.0);
        Shards none(4, &group, {zeros({2})}, schedule);
        for (const int64_t s : none.local_shards()) none.add(losses_of(s));
        EXPECT_FALSE(none.finish().gradients[0].defined());
      });
    }
  }
}

TEST(Shards, WrongCountsAreErrors) {
  Shards shards(2, nullptr, parameters());
  add(shards, 0, gradients_of(0));
  EXPECT_EQ(message([&] { shards.finish(); }), "Shards::finish: 1 of this rank's 2 shards were added");
  add(shards, 1, gradients_of(1));
  EXPECT_EQ(message([&] { shards.add(losses_of(2)); }),
            "Shards::add: this rank has 2 shards, 0 to 1, and all were added; call finish()");
  EXPECT_EQ(message([&] { deliver(shards, gradients_of(2)); }),
            "Shards: a gradient of parameter 1 arrives, and all shards of the step were added; call finish()");
  shards.finish();
  EXPECT_NE(message([&] { shards.add(Tensor::empty({2}, DType::f64)); }).find("expected f32"), std::string::npos);
  EXPECT_EQ(message([] { Shards(6, nullptr, {}); }), "6 virtual shards; expected a power of two");
  EXPECT_EQ(message([] { Shards(0, nullptr, {}); }), "0 virtual shards; expected a power of two");
  EXPECT_EQ(message([] { Shards(-4, nullptr, {}); }), "-4 virtual shards; expected a power of two");
  const Tensor leaf = parameters()[0];
  EXPECT_EQ(message([&] { Shards(2, nullptr, {leaf, Tensor()}); }),
            "Shards: parameter 1 of 2 is undefined; give leaves, such as Parameter::leaf()");
  EXPECT_NE(message([&] { Shards(2, nullptr, {leaf, parameters()[0], leaf}); }).find("parameters 0 and 2 are one leaf"),
            std::string::npos);
  EXPECT_EQ(message([] { parse_schedule("sometimes"); }),
            "'sometimes' is no schedule of gradient exchange; expected once_a_step or every_round");
  EXPECT_EQ(message([] { shards_of_rank(8, 0, 9); }),
            "9 data-parallel ranks cannot share 8 virtual shards: each needs at least one; start at most 8 ranks or "
            "raise numerics.virtual_shards");
}

// What is added must be the same thing in all shards and on all ranks: a flat buffer would not tell.
TEST(Shards, OtherUsesInAShardAreNamed) {
  const Tensor one = Tensor::of<float>({1.0f}), three = Tensor::of<float>({1.0f, 2.0f, 3.0f});
  const auto second = [&](const UseGradients& uses) {
    Shards shards(2, nullptr, {one, clone(one)});
    add(shards, 0, {{one}, {one}});
    return message([&] { add(shards, 1, uses); });
  };
  EXPECT_EQ(second({{one}, {}}),
            "Shards: parameter 1 has 0 uses in shard 1 and 1 in shard 0; let every shard use a parameter equally "
            "often, with zeros where it counts for nothing");
  EXPECT_EQ(second({{one, one}, {one}}),
            "Shards: parameter 0 has 2 uses in shard 1 and 1 in shard 0; let every shard use a parameter equally "
            "often, with zeros where it counts for nothing");
  EXPECT_EQ(second({{one}, {three}}), "Shards: a gradient of parameter 1 is [3] in shard 1 and [1] in shard 0");
  EXPECT_NE(second({{one}, {Tensor::empty({1}, DType::bf16)}})
                .find("a gradient of parameter 1 in shard 1 is [1] bf16 cpu; expected f32"),
            std::string::npos);
  for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
    for (const int ranks : {2, 4}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        Shards shards(4, &group, {one, clone(one)}, schedule);
        const bool other = group.rank() == ranks - 1;
        const std::string text = message([&] {
          for (const int64_t s : shards.local_shards())
            add(shards, s, other ? UseGradients{{}, {one}} : UseGradients{{one}, {}});
          shards.finish();
        });
        EXPECT_NE(text.find(fmt::format("the uses of parameters on rank {} are not those on rank 0", ranks - 1)),
                  std::string::npos)
            << text;
      });
    }
  }
}

TEST(ShardsOfRank, AreConsecutiveAndCoverAll) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    int64_t next = 0;
    for (int r = 0; r < ranks; ++r) {
      const ShardRange range = shards_of_rank(8, r, ranks);
      EXPECT_EQ(range.begin, next);
      EXPECT_GE(range.count(), 8 / ranks);
      EXPECT_LE(range.count(), 8 / ranks + 1);
      next = range.end;
    }
    EXPECT_EQ(next, 8);
  }
}

TEST(Shards, TellsWhatAnUnevenDivisionCosts) {
  const auto of = [](int64_t count, int ranks, const std::function<void(const Shards&)>& fn) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) { fn(Shards(count, &group, {})); });
  };
  of(8, 3, [](const Shards& shards) {
    EXPECT_DOUBLE_EQ(shards.efficiency(), 8.0 / 9);
    EXPECT_EQ(shards.advice(),
              "8 virtual shards on 3 ranks: the efficiency V / (R ceil(V / R)) is 89 %, because some ranks run 3 "
              "shards and others 2; "
              "numerics.virtual_shards of 16 or more (4 for each rank) makes it 80 % or more, and is another run with "
              "other bits");
  });
  of(8, 7, [](const Shards& shards) {
    EXPECT_DOUBLE_EQ(shards.efficiency(), 4.0 / 7);
    EXPECT_EQ(shards.advice(),
              "8 virtual shards on 7 ranks: the efficiency V / (R ceil(V / R)) is 57 %, because some ranks run 2 "
              "shards and others 1; "
              "numerics.virtual_shards of 32 or more (4 for each rank) makes it 80 % or more, and is another run with "
              "other bits");
  });
  of(32, 5, [](const Shards& shards) {
    EXPECT_EQ(shards.advice(),
              "32 virtual shards on 5 ranks: the efficiency V / (R ceil(V / R)) is 91 %, because some ranks run 7 "
              "shards and others 6");
  });
  of(8, 4, [](const Shards& shards) { EXPECT_EQ(shards.advice(), ""); });
}

// A backward that throws has delivered some uses; the step begins again as if nothing had come.
TEST(Shards, AnAbandonedStepLeavesNothing) {
  for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
    for (const int ranks : {1, 3}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        Shards shards(8, &group, parameters(), schedule);
        add(shards, shards.local_shards()[0], gradients_of(7));
        shards.sink()->use(1, 0, gradients_of(7)[1][0]);  // one of two uses of the next shard
        shards.abandon();
        const ShardSums sums = step_of(shards);
        EXPECT_EQ(contents(sums.gradients), expected(8));
        EXPECT_EQ(sums.loss, expected_loss(8));
      });
    }
  }
}

// After an error in which all ranks take part they are together again.
TEST(Shards, AfterAnErrorOfAllRanksTheStepBeginsAgain) {
  for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
    for (const int ranks : {3, 4}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        Shards shards(8, &group, parameters(), schedule);
        const std::string text = message([&] {
          for (const int64_t s : shards.local_shards()) {
            UseGradients uses = gradients_of(s);
            if (group.rank() == 1) std::swap(uses[0], uses[1]);  // as many elements
            add(shards, s, uses);
          }
          shards.finish();
        });
        EXPECT_NE(text.find("the uses of parameters on rank 1 are not those on rank 0"), std::string::npos) << text;
        EXPECT_EQ(contents(step_of(shards).gradients), expected(8));
      });
    }
  }
}

// What one rank finds wrong by itself reaches the others in the place of the exchange.
TEST(Shards, AnErrorOfOneRankIsToldToAll) {
  for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      Shards shards(8, &group, parameters(), schedule);
      const std::string text = message([&] {
        for (const int64_t s : shards.local_shards()) {
          if (group.rank() == 1 && s != shards.local_shards()[0]) {
            if (schedule == Schedule::once_a_step) break;
            add(shards, s, {{}, gradients_of(s)[1]});
          } else {
            add(shards, s, gradients_of(s));
          }
        }
        shards.finish();
      });
      const char* why = schedule == Schedule::once_a_step
                            ? "Shards::finish: 1 of this rank's 3 shards were added"
                            : "Shards: parameter 0 has 0 uses in shard 4 and 1 in shard 1";
      EXPECT_NE(text.find(why), std::string::npos) << text;
      EXPECT_EQ(text.find("rank 1 refused its call") != std::string::npos, group.rank() != 1) << text;
      EXPECT_EQ(contents(step_of(shards).gradients), expected(8));
    });
  }
}

TEST(Shards, UsesOfOtherSizesThanEachOtherAreNamed) {
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    Shards shards(2, &group, {zeros({2})});
    const std::string text = message([&] {
      add(shards, shards.local_shards()[0], {{Tensor::of<float>({1.0f, 2.0f}), Tensor::of<float>({1.0f})}});
      shards.finish();
    });
    EXPECT_NE(text.find("Shards: the uses of parameter 0 have gradients of [2] and [1]; expected one size"),
              std::string::npos)
        << text;
  });
}

}  // namespace
}  // namespace tutti::parallel
