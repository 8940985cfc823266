#include "tutti/train/memory_need.h"

#include <gtest/gtest.h>

#include "tutti/core/error.h"
#include "tutti/models/qwen3.h"
#include "tutti/train/machine.h"

namespace tutti::train {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

std::string message_of(const Config& config, int64_t available) {
  try {
    check_memory(config, available);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(MemoryNeed, CountsWeightsGradientsAndMoments) {
  Config config;
  const int64_t parameters = models::parameter_count(models::qwen3_config("quickstart"));
  EXPECT_EQ(least_memory(config).parameters, 16 * parameters);
  config.optimizer.name = "sgd";
  EXPECT_EQ(least_memory(config).parameters, 8 * parameters);
  config.optimizer.momentum = 0.9;
  EXPECT_EQ(least_memory(config).parameters, 12 * parameters);
  // Of what is divided a rank has a part, of its gradients at least one set.
  config.parallelism.data_parallel_shard_degree = 4;
  EXPECT_EQ(least_memory(config).parameters, (4 + 8 / 4) * parameters);
}

TEST(MemoryNeed, RefusesAModelThatCannotFit) {
  Config config;
  config.model.flavor = "32B";
  EXPECT_EQ(message_of(config, 24 * kGiB),
            "model.flavor = '32B' needs at least 488.2 GiB a rank for weights, gradients and optimizer state; there are 24.0 GiB of "
            "memory. Use a smaller flavor");
  EXPECT_EQ(message_of(config, 1024 * kGiB), "");
}

TEST(MemoryNeed, RefusesAShardThatCannotFit) {
  Config config;
  config.training.global_batch_tokens = int64_t{1} << 30;
  const std::string message = message_of(config, 24 * kGiB);
  EXPECT_NE(message.find("training.global_batch_tokens / numerics.virtual_shards = 134217728 tokens need at least"), std::string::npos)
      << message;
  config.training.global_batch_tokens = 8192;
  EXPECT_EQ(message_of(config, 24 * kGiB), "");
}

TEST(MemoryNeed, LogitsThatAreNeverWholeTakeNone) {
  Config config;
  const int64_t whole = least_memory(config).shard;
  config.training.loss_max_bytes = 1 << 20;
  const int64_t tokens = config.training.global_batch_tokens / config.numerics.virtual_shards;
  EXPECT_EQ(whole - least_memory(config).shard, 2 * 4 * tokens * models::qwen3_config("quickstart").vocab);
}

TEST(MemoryNeed, ThisMachineHasSome) { EXPECT_GT(machine_memory(), kGiB / 4); }

}  // namespace
}  // namespace tutti::train
