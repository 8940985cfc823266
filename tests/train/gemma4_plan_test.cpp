// Plans of published sizes of Gemma 4 from shapes alone: what ranks store of each parameter, and the layouts that the
// heads and experts do not allow.
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tutti/train/step/plan_layouts.h"

namespace tutti::train {
namespace {

// One virtual shard for each rank that has a part of the batch.
Config gemma4(const char* flavor, int64_t shards) {
  Config config;
  config.model.name = "gemma4", config.model.flavor = flavor;
  config.data.sequence_length = 64;
  config.training.global_batch_tokens = 1024 * shards;
  config.numerics.virtual_shards = shards;
  config.parallelism.data_parallel_schedule = "every_round";
  return config;
}

int64_t parameters_of(const StepPlan& plan) {
  int64_t count = 0;
  for (const PlannedTensor& tensor : plan.tensors) count += numel_of(tensor.sizes);
  return count;
}

void expect_parts_of_all(const char* flavor, int64_t parameters) {
  for (int64_t ranks = 1; ranks <= 64; ranks *= 2) {
    const StepPlan plan = StepPlanner(gemma4(flavor, ranks)).plan(ranks, {1, ranks}, true);
    EXPECT_EQ(parameters_of(plan), parameters) << ranks;
    for (const PlannedTensor& tensor : plan.tensors) {
      ASSERT_EQ(std::ssize(tensor.stored_bytes), ranks);
      int64_t sum = 0;
      for (const int64_t bytes : tensor.stored_bytes) sum += bytes;
      EXPECT_EQ(sum, 4 * numel_of(tensor.sizes)) << tensor.name << " over " << ranks;
      if (tensor.sizes[0] % ranks == 0) {
        EXPECT_EQ(tensor.most(), sum / ranks) << tensor.name;
      }
    }
  }
}

TEST(Gemma4Plan, OfTheDense31BHasEveryParameterOn1To64Ranks) { expect_parts_of_all("31B", 30'697'345'280); }
TEST(Gemma4Plan, OfTheMixtureHasEveryParameterOn1To64Ranks) { expect_parts_of_all("26B-A4B", 25'233'141'760); }

TEST(Gemma4Plan, OfTensorParallelRanksHasTheirParts) {
  const StepPlan plan = StepPlanner(gemma4("31B", 16)).plan(64, {1, 16, 4}, true);
  EXPECT_EQ(parameters_of(plan), 30'697'345'280);
  for (const PlannedTensor& tensor : plan.tensors) {
    const bool is_norm = tensor.sizes.ndim() == 1;  // which every rank of the four has
    EXPECT_EQ(tensor.most(), 4 * numel_of(tensor.sizes) / (is_norm ? 16 : 64)) << tensor.name;
  }
}

TEST(Gemma4Plan, NamesTheNearestLayoutThatIsPossible) {
  const auto refusal = [](const char* flavor, DataDegrees degrees, int64_t ranks) {
    return message_of([&] { StepPlanner(gemma4(flavor, 4)).plan(ranks, degrees, true); });
  };
  EXPECT_NE(
      refusal("31B", {1, 1, 8}, 8).find("a power of two up to 4, for degrees are bounded by 4 key/value heads (4)"),
      std::string::npos)
      << refusal("31B", {1, 1, 8}, 8);
  EXPECT_NE(refusal("E2B", {1, 1, 2}, 2).find("up to 1, for degrees are bounded by 1 key/value head (1)"),
            std::string::npos);
  EXPECT_NE(refusal("tiny_moe", {1, 4, 1, 4}, 4).find("'model.layers.0.moe' has 6 experts, which it does not divide"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::train
