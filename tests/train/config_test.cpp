#include "tutti/train/config/config.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/support/message_of.h"
#include "tutti/train/survival/survival_rules.h"

namespace tutti::train {
namespace {

TEST(Config, IsValidWithDefaultsAndSomeText) {
  Config config;
  config.data.paths = {"text"};
  EXPECT_NO_THROW(validate(config));
}

TEST(Survival, IsRefusedWithTheReasonWhereNoMemoryOutlivesARank) {
  Config config;
  config.data.paths = {"text"};
  config.training.survive_rank_loss = true;
  EXPECT_NO_THROW(validate(config));
  const auto refused = [&](const auto& change) {
    Config other = config;
    change(other);
    return message_of([&] { validate(other); });
  };
  const std::string instead = "start with --max-restarts=N: then all ranks go on from the last checkpoint";
  const std::string tensor = refused([](Config& c) { c.parallelism.tensor_parallel_degree = 2; });
  EXPECT_NE(tensor.find("parallelism.tensor_parallel_degree = 2"), std::string::npos) << tensor;
  EXPECT_NE(tensor.find(instead), std::string::npos) << tensor;
  const std::string transport = refused([](Config& c) { c.runtime.transport = "gloo"; });
  EXPECT_NE(transport.find("runtime.transport = 'gloo'"), std::string::npos) << transport;
  EXPECT_NE(transport.find(instead), std::string::npos) << transport;
}

TEST(Survival, TheRanksThatAreLeftDivideWhatWasDivided) {
  const auto degrees = [](const ParallelismConfig& config) {
    return std::pair(config.data_parallel_replicate_degree, config.data_parallel_shard_degree);
  };
  ParallelismConfig replicas{.data_parallel_replicate_degree = 4},
      shards{.data_parallel_replicate_degree = 2, .data_parallel_shard_degree = 2};
  EXPECT_EQ(degrees(layout_of_survivors(replicas, 4, 4)), std::pair(int64_t{4}, int64_t{1}));
  EXPECT_EQ(degrees(layout_of_survivors(replicas, 4, 3)), std::pair(int64_t{-1}, int64_t{1}));
  EXPECT_EQ(degrees(layout_of_survivors(shards, 4, 4)), std::pair(int64_t{2}, int64_t{2}));
  EXPECT_EQ(degrees(layout_of_survivors(shards, 4, 3)), std::pair(int64_t{1}, int64_t{-1}));
}

}  // namespace
}  // namespace tutti::train
