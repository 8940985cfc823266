// Fake tensors, and the plans of steps that are made with them; tests/cli/plan_test.cpp compares plans with
// measurements.
#include "tutti/train/step/step_plan.h"
#include "tutti/train/step/check_memory.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/engine/fake.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/reduction.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::train {
namespace {

TEST(FakeTensors, AreCountedAndTakeNoMemory) {
  const int64_t before = RankContext::current().allocator().statistics().current_bytes;
  const FakeScope fake;
  {
    const Tensor large = fake.empty({1 << 20, 1 << 16}, DType::f32);  // 256 GiB
    const Tensor twice = add(large, large);
    EXPECT_EQ(twice.extents(), large.extents());
    EXPECT_EQ(fake.statistics().current_bytes, int64_t{2} << 38);
    EXPECT_EQ(RankContext::current().allocator().statistics().current_bytes, before);
    add_(twice, large);
    EXPECT_EQ(fake.statistics().current_bytes, int64_t{2} << 38);
  }
  EXPECT_EQ(fake.statistics().current_bytes, 0);
  EXPECT_EQ(fake.statistics().peak_bytes, int64_t{2} << 38);
}

TEST(FakeTensors, HaveGradients) {
  const FakeScope fake;
  const Tensor x = fake.empty({8, 4}, DType::f32), w = fake.empty({4, 2}, DType::f32);
  requires_grad_(w);
  backward(sum(matmul(x, w)));
  EXPECT_EQ(grad_of(w).extents(), (Extents{4, 2}));
  EXPECT_FALSE(grad_of(w).storage()->has_memory());
}

TEST(FakeTensors, RefuseToTellTheirElementsAndASecondScope) {
  const FakeScope fake;
  const Tensor x = fake.empty({2}, DType::f32);
  EXPECT_NE(message_of([&] { x.data<float>(); }).find("the elements of a fake tensor were asked for"),
            std::string::npos);
  EXPECT_NE(message_of([&] { const FakeScope second; }).find("this thread has one already"), std::string::npos);
  EXPECT_NO_THROW(add(x, x));
}

TEST(StepPlan, RanksThatDivideParametersHaveAPartOfThem) {
  Config config;
  config.model.flavor = "tiny";
  StepPlanner planner(config);
  const auto of = [&](const StepPlan& plan, MemoryCategory category) {
    return plan.of_ranks[0].by_category[static_cast<size_t>(category)];
  };
  const StepPlan whole = planner.plan(4, {4, 1}, true), divided = planner.plan(4, {1, 4}, true),
                 gathered = planner.plan(4, {1, 4}, false);
  EXPECT_LT(of(divided, MemoryCategory::optimizer), of(whole, MemoryCategory::optimizer) / 3);
  EXPECT_LT(of(divided, MemoryCategory::parameters), of(whole, MemoryCategory::parameters) / 3);
  EXPECT_GT(of(gathered, MemoryCategory::parameters), of(divided, MemoryCategory::parameters));
  EXPECT_EQ(of(divided, MemoryCategory::activations), of(whole, MemoryCategory::activations));
  EXPECT_EQ(divided.parameter_bytes, 0);
  EXPECT_GT(gathered.parameter_bytes, 0);
  // Replicas hand their sums to each other, parts stay where they are.
  EXPECT_LT(divided.gradient_bytes, whole.gradient_bytes);
}

TEST(StepPlan, MemoryThatIsNotThereIsRefusedWithTheNumbers) {
  Config config;
  config.model.flavor = "32B";
  const auto message = [&](int64_t gib) { return message_of([&] { check_memory(config, 1, 1, true, gib << 30); }); };
  EXPECT_NE(message(24).find("a step of 1 rank of this host needs "), std::string::npos) << message(24);
  EXPECT_NE(message(24).find("and there are 24.0"), std::string::npos) << message(24);
  EXPECT_NE(message(24).find("than '32B'"), std::string::npos) << message(24);
  EXPECT_NO_THROW(check_memory(config, 1, 1, true, int64_t{4096} << 30));
  // What one rank has room for, four on one host may not.
  config.model.flavor = "0.6B";
  EXPECT_NO_THROW(check_memory(config, 4, 1, true, int64_t{24} << 30));
  EXPECT_THROW(check_memory(config, 4, 4, true, int64_t{24} << 30), UsageError);
}

// The least bound that the error names is one that will do, and one byte less is not.
TEST(StepPlan, ALossBoundThatIsTooSmallIsRefusedByItsKeyWithTheLeastThatWillDo) {
  struct Case {
    const char* flavor;
    int64_t ranks;
    DataDegrees degrees;
    std::string dtype = "float32";
  };
  const Case cases[] = {{"tiny", 1, {}},
                        {"tiny", 4, {.replicate = 4}},
                        {"tiny-tp4", 2, {.tensor = 2}},
                        {"tiny", 4, {.shard = 4}},
                        {"tiny", 2, {.shard = 2}, "bfloat16"},
                        {"tiny_moe", 4, {.shard = 4, .expert = 2}},
                        {"quickstart", 2, {.replicate = 2}}};
  for (const Case& c : cases) {
    Config config;
    config.model.flavor = c.flavor;
    config.training.mixed_precision_param = c.dtype;
    const auto message = [&](int64_t bytes) {
      config.training.loss_max_bytes = bytes;
      return message_of([&] { StepPlanner(config).plan(c.ranks, c.degrees, true); });
    };
    const std::string text = message(1), before = "set it to ";
    EXPECT_EQ(text.find("training.loss_max_bytes = 1 is too small for virtual shards of 1024 tokens of model.flavor '"),
              0u)
        << text;
    ASSERT_NE(text.find(before), std::string::npos) << text;
    const int64_t least = std::stoll(text.substr(text.find(before) + before.size()));
    config.training.loss_max_bytes = least;
    EXPECT_NO_THROW(StepPlanner(config).plan(c.ranks, c.degrees, true)) << c.flavor;
    EXPECT_NE(message(least - 1).find(fmt::format("loss_max_bytes = {} is too small", least - 1)), std::string::npos)
        << c.flavor << message(least - 1);
  }
}

TEST(Schedule, IsChosenByTheLayoutUnlessItIsNamed) {
  ParallelismConfig config;
  EXPECT_EQ(chosen_schedule(config, true), "once_a_step");
  config.expert_parallel_degree = 2;
  EXPECT_EQ(chosen_schedule(config, true), "every_round");
  config = {.tensor_parallel_degree = 2};
  EXPECT_EQ(chosen_schedule(config, true), "every_round");  // they divide the tokens that come to experts
  EXPECT_EQ(chosen_schedule(config, false), "once_a_step");
  config.data_parallel_schedule = "every_round";
  EXPECT_EQ(chosen_schedule(config, false), "every_round");
}

TEST(Schedule, IsPlannedAsItIsChosen) {
  Config config;
  config.model.flavor = "tiny_moe";
  const DataDegrees degrees{.replicate = 2, .expert = 2};
  const StepPlan chosen = StepPlanner(config).plan(2, degrees, true);
  config.parallelism.data_parallel_schedule = "every_round";
  const StepPlan named = StepPlanner(config).plan(2, degrees, true);
  EXPECT_EQ(chosen.largest().peak(), named.largest().peak());
  EXPECT_EQ(chosen.sent_bytes(), named.sent_bytes());
  config.parallelism.data_parallel_schedule = "once_a_step";
  EXPECT_THROW(StepPlanner(config).plan(2, degrees, true), UsageError);
}

}  // namespace
}  // namespace tutti::train
