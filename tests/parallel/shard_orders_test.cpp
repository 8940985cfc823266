// Virtual shards whose gradients arrive in any order and from several threads, and the loop over the shards of a step.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>

#include "tutti/autograd/backward.h"
#include "tutti/autograd/use_sink.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/module.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/random.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/tensor_operators.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/parallel/shards.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kElements = 24;
// How often each parameter is used in a shard; the third is a weight without a use.
constexpr int64_t kUses[] = {1, 3, 0, 2};
constexpr int64_t kParameters = std::size(kUses);

// Values of very different size, so that every order of adding gives other bits.
float value_of(int64_t shard, int64_t parameter, int64_t use, int64_t i) {
  const uint32_t x = static_cast<uint32_t>(((shard * 7 + parameter) * 5 + use) * 977 + i * 131 + 1) * 2654435761u;
  return std::ldexp(static_cast<float>(static_cast<int32_t>(x)), static_cast<int>(x >> 27) - 50);
}

Tensor gradient_of(int64_t shard, int64_t parameter, int64_t use) {
  std::vector<float> values;
  for (int64_t i = 0; i < kElements; ++i) values.push_back(value_of(shard, parameter, use, i));
  return Tensor::of(values);
}

std::vector<Tensor> parameters() {
  std::vector<Tensor> leaves;
  for (int64_t p = 0; p < kParameters; ++p) leaves.push_back(zeros({kElements}));
  return leaves;
}

// The tree as N5 has it, from its definition.
float plain_tree(int64_t begin, int64_t end, int64_t p, int64_t u, int64_t i) {
  if (end - begin == 1) return value_of(begin, p, u, i);
  const int64_t middle = begin + (end - begin) / 2;
  return plain_tree(begin, middle, p, u, i) + plain_tree(middle, end, p, u, i);
}

void expect_the_plain_tree(const ShardSums& sums, int64_t shards, const std::string& where) {
  for (int64_t p = 0; p < kParameters; ++p) {
    const Tensor& sum = sums.gradients[static_cast<size_t>(p)];
    ASSERT_EQ(sum.defined(), kUses[p] > 0) << where;
    if (!sum.defined()) continue;
    for (int64_t i = 0; i < kElements; ++i) {
      float expected = plain_tree(0, shards, p, 0, i);
      for (int64_t u = 1; u < kUses[p]; ++u) expected += plain_tree(0, shards, p, u, i);
      ASSERT_EQ(std::bit_cast<uint32_t>(sum.data<float>()[i]), std::bit_cast<uint32_t>(expected))
          << where << ", parameter " << p << ", element " << i;
    }
  }
}

// The deliveries of one shard, in the order of a backward: parameters and uses from the last to the first.
std::vector<std::function<void()>> deliveries_of(UseSink* sink, int64_t shard) {
  std::vector<std::function<void()>> calls;
  for (int64_t p = kParameters; p-- > 0;) {
    for (int64_t u = kUses[p]; u-- > 0;)
      calls.emplace_back([=] { sink->use(static_cast<int32_t>(p), 0, gradient_of(shard, p, u)); });
    if (kUses[p] > 0) calls.emplace_back([=] { sink->finished(static_cast<int32_t>(p)); });
  }
  return calls;
}

Tensor losses_of(int64_t shard) { return full({2}, std::ldexp(1.0, static_cast<int>(shard * 5) - 20)); }

std::string message(const std::function<void()>& function) {
  try {
    function();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Pseudo-random numbers, as those of a linear congruential generator without its low bits.
struct Numbers {
  uint64_t state;
  uint32_t operator()() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 33);
  }
};

// Backwards of all shards are interleaved at random, and each shard is added at a random time after its last delivery.
void run_interleaved(Shards& shards, Numbers& random) {
  struct Running {
    UseSink* sink;
    int64_t shard;
    std::vector<std::function<void()>> calls;
    size_t done = 0;
  };
  std::vector<Running> running;
  for (const int64_t s : shards.local_shards()) {
    UseSink* const sink = shards.open(s).sink();
    running.push_back({sink, s, deliveries_of(sink, s)});
  }
  while (!running.empty()) {
    const size_t r = random() % running.size();
    Running& one = running[r];
    if (one.done < one.calls.size()) {
      one.calls[one.done++]();
      continue;
    }
    shards.open(one.shard).add(losses_of(one.shard));
    running.erase(running.begin() + static_cast<ptrdiff_t>(r));
  }
}

TEST(ShardOrders, TwoHundredRandomOrdersOfDeliveriesHaveTheSameBits) {
  Numbers random{20};
  constexpr int kRanks[] = {1, 2, 3, 5, 8};
  int orders = 0;
  for (int turn = 0; turn < 20; ++turn) {
    for (const int ranks : kRanks) {
      for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
        const uint32_t seed = random();
        const Overlap overlap = schedule == Schedule::once_a_step && turn % 2 == 1 ? Overlap::backward : Overlap::none;
        comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
          Numbers mine{seed + static_cast<uint32_t>(group.rank())};
          const std::vector<Tensor> leaves = parameters();
          std::vector<ParameterClass> classes;  // whose exchanges follow each other on one group
          if (turn % 3 == 2 && overlap == Overlap::none)
            classes = {{.name = "a", .parameters = {leaves[3]}, .holders = &group, .nodes = 8},
                       {.name = "b", .parameters = {leaves[0], leaves[2]}, .holders = &group, .nodes = 8}};
          Shards shards(8, &group, leaves, schedule, overlap, classes);
          for (int step = 0; step < 2; ++step) {
            run_interleaved(shards, mine);
            const ShardSums sums = shards.finish();
            expect_the_plain_tree(sums, 8, fmt::format("{} ranks, seed {}, step {}", ranks, seed, step));
            double loss = 0;
            for (int64_t s = 0; s < 8; ++s) loss += 2 * std::ldexp(1.0, static_cast<int>(s * 5) - 20);
            EXPECT_EQ(sums.loss, loss);
          }
        });
        ++orders;
      }
    }
  }
  EXPECT_EQ(orders, 200);
}

TEST(ShardOrders, ShardsOnTwoThreadsHaveTheSameBits) {
  for (int turn = 0; turn < 10; ++turn) {
    for (const int ranks : {1, 2, 3}) {
      for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
        comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
          Shards shards(8, &group, parameters(), schedule);
          const std::vector<int64_t>& local = shards.local_shards();
          const auto run_every_other = [&](size_t first) {
            for (size_t i = first; i < local.size(); i += 2) {
              Shard shard = shards.open(local[i]);
              for (const auto& deliver : deliveries_of(first == 0 ? shard.sink() : shards.sink(), shard.index()))
                deliver();
              shard.add(losses_of(shard.index()));
            }
          };
          RankContext& rank = RankContext::current();
          std::thread other([&] {
            const RankContext::Scope scope(rank);
            run_every_other(1);
          });
          run_every_other(0);
          other.join();
          expect_the_plain_tree(shards.finish(), 8, fmt::format("{} ranks", ranks));
        });
      }
    }
  }
}

// A delivery comes after its shard was left, as the gradients of weights do in a pipeline.
TEST(ShardOrders, AShardMayBeLeftAndOpenedAgainBeforeItIsAdded) {
  Shards shards(4, nullptr, parameters());
  std::vector<std::vector<std::function<void()>>> calls;
  for (const int64_t s : {3, 1, 0, 2}) calls.push_back(deliveries_of(shards.open(s).sink(), s));
  for (size_t half = 0; half < 2; ++half) {
    for (const auto& of_shard : calls) {
      for (size_t i = half == 0 ? 0 : of_shard.size() / 2; i < (half == 0 ? of_shard.size() / 2 : of_shard.size()); ++i)
        of_shard[i]();
    }
  }
  for (const int64_t s : {0, 3, 2, 1}) shards.open(s).add(losses_of(s));
  expect_the_plain_tree(shards.finish(), 4, "late weights");
}

TEST(ShardOrders, OtherUsesInAShardAreNamedInAnyOrder) {
  Shards shards(2, nullptr, parameters());
  UseSink* const first = shards.open(1).sink();
  UseSink* const second = shards.open(0).sink();
  for (const auto& deliver : deliveries_of(first, 1)) deliver();
  second->use(0, 0, gradient_of(0, 0, 0));
  shards.open(1).add(losses_of(1));
  EXPECT_EQ(message([&] { shards.open(0).add(losses_of(0)); }),
            "Shards: parameter 1 has 0 uses in shard 0 and 3 in shard 1; let every shard use a parameter equally "
            "often, with zeros where it counts for nothing");
  // The step is abandoned: the next one has uses of its own.
  for (const int64_t s : {1, 0}) {
    for (const auto& deliver : deliveries_of(shards.open(s).sink(), s)) deliver();
    shards.open(s).add(losses_of(s));
  }
  expect_the_plain_tree(shards.finish(), 2, "after an error");
}

// The error of a shard whose turn has not come is told when its round comes.
TEST(ShardOrders, ALaterShardWithOtherUsesIsAnErrorOnAllRanks) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    Shards shards(4, &group, parameters(), Schedule::every_round);
    const auto run = [&](int64_t s, bool all) {
      const auto calls = deliveries_of(shards.open(s).sink(), s);
      for (size_t i = all ? 0 : 1; i < calls.size(); ++i) calls[i]();
      shards.open(s).add(losses_of(s));
    };
    const std::string said = message([&] {
      run(shards.local_shards()[1], group.rank() == 1);
      run(shards.local_shards()[0], true);
    });
    EXPECT_NE(said.find("Shards: "), std::string::npos) << said;
    for (const int64_t s : shards.local_shards()) run(s, true);
    expect_the_plain_tree(shards.finish(), 4, "the step after it");
  });
}

struct Regression final : nn::Module {
  nn::Child<nn::Linear> first{this, "first", 6, 5}, second{this, "second", 5, 1};
  Tensor losses(int64_t step, int64_t shard) const {
    const Tensor x = uniform({4, 6}, random_key("x", 0, static_cast<uint32_t>(step), static_cast<uint32_t>(shard)));
    const Tensor error = sub(sum(second(mul(first(x), first(x))), {.dims = {1}}), 1.0);
    return mul(error, error);
  }
};

TEST(ShardsOfAStep, AreRunByALoopThatAddsEachOfThem) {
  for (const int ranks : {1, 2, 3, 5}) {
    for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        Shards shards(8, &group, parameters(), schedule);
        for (int64_t step = 1; step <= 3; ++step) {
          std::vector<int64_t> seen;
          for (Shard& shard : shards.step(step)) {
            seen.push_back(shard.index());
            for (const auto& deliver : deliveries_of(shards.sink(), shard.index())) deliver();
            shard.add(losses_of(shard.index()));
          }
          EXPECT_EQ(seen, shards.local_shards());
          expect_the_plain_tree(shards.finish(), 8, fmt::format("{} ranks, step {}", ranks, step));
        }
      });
    }
  }
}

TEST(ShardsOfAStep, ALoopThatIsLeftByAnExceptionAbandonsTheStep) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    Shards shards(8, &group, parameters());
    for (int turn = 0; turn < 2; ++turn) {
      const auto fail = [&] {
        for (Shard& shard : shards.step(1)) {
          for (const auto& deliver : deliveries_of(shard.sink(), shard.index())) deliver();
          if (shard.index() == shards.local_shards()[1]) throw UsageError("no more data");
          shard.add(losses_of(shard.index()));
        }
      };
      EXPECT_EQ(message(fail), "no more data");
      for (Shard& shard : shards.step(1)) {
        for (const auto& deliver : deliveries_of(shard.sink(), shard.index())) deliver();
        shard.add(losses_of(shard.index()));
      }
      expect_the_plain_tree(shards.finish(), 8, "after an exception");
    }
  });
}

// What the first pass has brought must not be added to the second one.
TEST(ShardsOfAStep, ALoopThatIsLeftByABreakAbandonsTheStep) {
  for (const int64_t count : {1, 4}) {
    Shards shards(count, nullptr, parameters());
    for (Shard& shard : shards.step(1)) {
      for (const auto& deliver : deliveries_of(shard.sink(), shard.index())) deliver();
      if (shard.index() == count - 1) break;  // before it is added
      shard.add(losses_of(shard.index()));
    }
    for (Shard& shard : shards.step(1)) {
      for (const auto& deliver : deliveries_of(shard.sink(), shard.index())) deliver();
      shard.add(losses_of(shard.index()));
      if (shard.index() == count - 1) break;  // after all were added
    }
    expect_the_plain_tree(shards.finish(), count, "after a break");
  }
}

// A step that one thread abandons is over for the shards of the others, too.
TEST(ShardsOfAStep, AShardOfAnAbandonedStepIsRefused) {
  Shards shards(2, nullptr, parameters());
  {
    Shard late = shards.open(1);
    late.sink()->use(0, 0, gradient_of(1, 0, 0));
    shards.abandon();
    for (UseSink* const sink : {late.sink(), shards.sink()})
      EXPECT_EQ(message([&] { sink->use(0, 0, gradient_of(1, 0, 0)); }),
                "Shards: the step of shard 1 was abandoned; open the shard again");
    EXPECT_EQ(message([&] { late.add(losses_of(1)); }),
              "Shards: the step of shard 1 was abandoned; open the shard again");
  }
  for (Shard& shard : shards.step(1)) {
    for (const auto& deliver : deliveries_of(shard.sink(), shard.index())) deliver();
    shard.add(losses_of(shard.index()));
  }
  expect_the_plain_tree(shards.finish(), 2, "after an abandoned step");
}

TEST(ShardsOfAStep, RandomNumbersOfAShardDoNotComeTwice) {
  Shards shards(2, nullptr, parameters());
  std::vector<float> drawn;
  {
    const Shard shard = shards.open(1, 7);
    for (int i = 0; i < 2; ++i) drawn.push_back(uniform({1}).data<float>()[0]);
  }
  EXPECT_NE(drawn[0], drawn[1]);
  EXPECT_EQ(message([&] { shards.open(1, 7); }),
            "Shards::open: shard 1 was opened before in this step, and its random numbers would come again; draw in "
            "the first opening, and give no step to the others");
  EXPECT_EQ(message([&] { shards.open(1); }), "nothing was thrown");
}

TEST(ShardsOfAStep, OneThreadRunsShardsOfDividedParameters) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    nn::Linear model(4, 3);
    fully_shard(model);
    nn::initialize(model);
    Shards shards(4, &group, nn::leaves_of(model.named_parameters()));
    const std::vector<int64_t>& local = shards.local_shards();
    const Shard shard = shards.open(local[0]);
    RankContext& rank = RankContext::current();
    std::string said;
    std::thread other([&] {
      const RankContext::Scope scope(rank);
      said = message([&] { shards.open(local[1]); });
    });
    other.join();
    EXPECT_NE(said.find("is open on another thread, and fully_shard() has divided the parameters"), std::string::npos)
        << said;
    EXPECT_NE(message([&] { shards.add(ones({1}, DType::f64)); }).find("expected f32"), std::string::npos);
  });
}

// A model whose last call of fully_shard() takes no parameter joins the groups of its blocks all the same.
TEST(ShardsOfAStep, RoundsAreThoseOfAModelThatWasPutTogetherLater) {
  for (const int ranks : {1, 2, 3}) {
    comm::run_ranks(ranks,
                    [&](comm::ProcessGroup& group) {
                      seed_all(3);
                      Regression model;
                      fully_shard(*model.first);
                      fully_shard(*model.second);
                      Shards shards(4, &group, nn::leaves_of(model.named_parameters()));
                      fully_shard(model);
                      nn::initialize(model);
                      for (int64_t step = 1; step <= 2; ++step) {
                        for (Shard& shard : shards.step(step)) shard.backward(model.losses(step, shard.index()), 0.25);
                        EXPECT_TRUE(std::isfinite(shards.finish().norm));
                      }
                    },
                    {.transport = "gloo"});
  }
}

TEST(ShardsOfAStep, ABodyThatForgetsItsShardIsAnErrorOnAllRanksThatMeetInRounds) {
  comm::run_ranks(2, [](comm::ProcessGroup& group) {
    Shards shards(4, &group, parameters(), Schedule::every_round);
    const std::string said = message([&] {
      for (Shard& shard : shards.step(7)) {
        if (group.rank() == 1 && shard.index() == 3) continue;
        for (const auto& deliver : deliveries_of(shard.sink(), shard.index())) deliver();
        shard.add(losses_of(shard.index()));
      }
    });
    EXPECT_NE(said.find("the loop has ended shard 3 without its losses"), std::string::npos) << said;
  });
  Shards alone(2, nullptr, parameters());
  EXPECT_EQ(message([&] {
              for (Shard& shard : alone.step(7)) (void)shard;
            }),
            "Shards::step: the loop has ended shard 0 without its losses; call shard.backward(losses), or "
            "shard.add(losses) after a backward of your own");
}

TEST(ShardsOfAStep, WrongUseIsRefused) {
  Shards shards(4, nullptr, parameters());
  EXPECT_EQ(message([&] { shards.open(4); }), "Shards::open: shard 4 is not one of the 4 of this rank, 0 to 3");
  EXPECT_EQ(message([&] { shards.step(-1); }), "Shards::step: step -1; expected 0 to 2^32 - 1");
  EXPECT_EQ(message([&] { shards.step(int64_t{1} << 32); }), "Shards::step: step 4294967296; expected 0 to 2^32 - 1");
  {
    const Shard one = shards.open(1);
    EXPECT_EQ(message([&] { shards.open(2); }),
              "Shards::open: shard 1 is open on this thread; end it before shard 2 begins");
  }
  Shard two = shards.open(2);
  for (const auto& deliver : deliveries_of(two.sink(), 2)) deliver();
  two.add(losses_of(2));
  EXPECT_EQ(message([&] { two.add(losses_of(2)); }), "Shard::add: shard 2 was added before");
  EXPECT_EQ(message([&] { two.sink()->use(0, 0, gradient_of(2, 0, 0)); }),
            "Shards: a gradient of parameter 0 arrives from shard 2, which was added before");
  EXPECT_EQ(message([&] { shards.step(2); }),
            "Shards::step: 2 of this rank's 4 shards were begun in a step that has not ended; call finish(), or "
            "abandon()");
  EXPECT_EQ(message([&] { shards.set_reduce_scatter_max_input_buffers(3); }),
            "set_reduce_scatter_max_input_buffers: 1 shards of the step were added; call it between steps");
}

TEST(ParameterClasses, ThatDoNotFitAreRefused) {
  const std::vector<Tensor> leaves = parameters();
  const auto make = [&](std::vector<ParameterClass> classes) {
    return message([&] { Shards(4, nullptr, leaves, Schedule::every_round, Overlap::none, std::move(classes)); });
  };
  EXPECT_EQ(make({{.name = "late", .parameters = {leaves[1], leaves[3]}, .nodes = 4}}), "nothing was thrown");
  EXPECT_NE(make({{.name = "late", .parameters = {zeros({2})}, .nodes = 4}}).find("parameter 0 of the class 'late', "),
            std::string::npos);
  EXPECT_EQ(make({{.name = "a", .parameters = {leaves[1]}, .nodes = 4},
                  {.name = "b", .parameters = {leaves[1]}, .nodes = 4}}),
            "Shards: parameter 1 is in two classes, one of them 'b'");
  EXPECT_EQ(make({{.name = "late", .parameters = {leaves[1]}, .nodes = 2}}),
            "Shards: this rank has 4 shards and 2 nodes of the class 'late'; expected as many");
  EXPECT_EQ(
      message([&] {
        Shards(4, nullptr, leaves, Schedule::once_a_step, Overlap::backward,
               {{.name = "late", .parameters = {leaves[1]}, .nodes = 4}});
      }),
      "Shards: gradients of 2 classes cannot move under backward, since ranks would not begin to exchange them in "
      "one order; expected the overlap none");
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    EXPECT_EQ(message([&] {
                Shards(4, &group, leaves, Schedule::once_a_step, Overlap::none,
                       {{.name = "experts", .parameters = {leaves[0]}, .nodes = 2}});
              }),
              "Shards: the gradients of the class 'experts' have 2 nodes for 4 shards on 2 ranks, which needs the "
              "schedule every_round");
  });
}

// Classes whose ranks and nodes are those of the others change nothing.
TEST(ParameterClasses, HaveTheBitsOfOneClass) {
  for (const int ranks : {1, 2, 3}) {
    for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        const std::vector<Tensor> leaves = parameters();
        Shards shards(8, &group, leaves, schedule, Overlap::none,
                      {{.name = "a", .parameters = {leaves[3]}, .holders = &group, .nodes = 8},
                       {.name = "b", .parameters = {leaves[0], leaves[2]}, .holders = &group, .nodes = 8}});
        for (Shard& shard : shards.step(1)) {
          for (const auto& deliver : deliveries_of(shard.sink(), shard.index())) deliver();
          shard.add(losses_of(shard.index()));
        }
        expect_the_plain_tree(shards.finish(), 8, "three classes");
      });
    }
  }
}

// What finish_step() does is what its parts do, for every kind of norm and on every number of ranks.
TEST(FinishStep, StepsTheOptimizerWithClippedGradients) {
  for (const double norm_type : {1.0, 2.0, 3.5, std::numeric_limits<double>::infinity()}) {
    std::vector<float> expected;
    for (const int ranks : {1, 2, 3, 4}) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        seed_all(3);
        Regression model;
        nn::initialize(model);
        const auto optimizer = optim::make_adamw(model.named_parameters(), {.lr = 0.02});
        Shards shards(4, &group, nn::leaves_of(optimizer->parameters()));
        std::vector<float> values;
        for (int64_t step = 1; step <= 3; ++step) {
          for (Shard& shard : shards.step(step)) shard.backward(model.losses(step, shard.index()), 0.25);
          const StepResult result = shards.finish_step(*optimizer, {.max_norm = 0.5, .norm_type = norm_type});
          values.push_back(static_cast<float>(result.loss));
          values.push_back(result.norm);
        }
        for (const nn::NamedParameter& p : model.named_parameters()) {
          const Tensor master = p.parameter.master();
          values.insert(values.end(), master.data<float>(), master.data<float>() + master.numel());
        }
        if (ranks == 1) expected = values;
        EXPECT_EQ(values, expected) << ranks << " ranks, norm " << norm_type;
      });
    }
    // One rank, step by step.
    seed_all(3);
    Regression model;
    nn::initialize(model);
    const auto optimizer = optim::make_adamw(model.named_parameters(), {.lr = 0.02});
    Shards shards(4, nullptr, nn::leaves_of(optimizer->parameters()));
    for (int64_t step = 1; step <= 3; ++step) {
      for (Shard& shard : shards.step(step)) {
        const Tensor losses = model.losses(step, shard.index());
        backward(losses, full_like(losses, 0.25), {.sink = shards.sink()});
        shard.add(detach(losses));
      }
      const ShardSums sums = shards.finish(norm_type);
      double norm = 0;
      for (const Tensor& g : sums.gradients) {
        for (int64_t i = 0; i < g.numel(); ++i) {
          const double x = std::abs(static_cast<double>(g.data<float>()[i]));
          norm = std::isinf(norm_type) ? std::max(norm, x) : norm + std::pow(x, norm_type);
        }
      }
      if (!std::isinf(norm_type)) norm = std::pow(norm, 1.0 / norm_type);
      EXPECT_NEAR(sums.norm, norm, 1e-6 * norm) << norm_type;
      EXPECT_EQ(sums.norm, expected[static_cast<size_t>(2 * step - 1)]);
      optimizer->step(sums.gradients, 0.02, optim::clip_scale(sums.norm, 0.5));
    }
    size_t at = 6;
    for (const nn::NamedParameter& p : model.named_parameters()) {
      for (int64_t i = 0; i < p.parameter.master().numel(); ++i)
        ASSERT_EQ(p.parameter.master().data<float>()[i], expected[at++]) << p.name;
    }
  }
}

TEST(FinishStep, RefusesAnOptimizerOfOtherParametersAndNormsWithoutMeaning) {
  seed_all(3);
  Regression model, other;
  nn::initialize(model);
  nn::initialize(other);
  const auto optimizer = optim::make_sgd(other.named_parameters());
  Shards shards(2, nullptr, nn::leaves_of(model.named_parameters()));
  EXPECT_EQ(
      message([&] { shards.finish_step(*optimizer); }),
      "Shards::finish_step: the 4 parameters of the optimizer are not the 4 of these shards, in their order; make "
      "the Shards with nn::leaves_of(optimizer->parameters()), after fully_shard() and Module::to()");
  EXPECT_EQ(message([&] { shards.finish(0.0); }), "a gradient norm of type 0; expected a number above 0, or infinity");
  EXPECT_EQ(message([&] { shards.finish(std::nan("")); }),
            "a gradient norm of type nan; expected a number above 0, or infinity");
}

}  // namespace
}  // namespace tutti::parallel
