#include "tutti/train/config.h"

#include <gtest/gtest.h>

namespace tutti::train {
namespace {

TEST(Config, ListsChangesThatForbidResuming) {
  Config saved;
  Config now;
  now.model.flavor = "debugmodel";
  now.data.paths = {"other.txt"};
  EXPECT_EQ(changes_that_forbid_resuming(saved, now),
            (std::vector<std::string>{R"(model.flavor: "quickstart" -> "debugmodel")",
                                      R"(data.paths: [] -> ["other.txt"])"}));
}

TEST(Config, MayRunLongerAndOnOtherThreadsWhenResumed) {
  Config saved;
  Config now;
  now.training.steps = 2000;
  now.runtime.threads = 2;
  now.parallelism.data_parallel_replicate_degree = 4;
  EXPECT_TRUE(changes_that_forbid_resuming(saved, now).empty());
}

TEST(Config, IsValidWithDefaultsAndSomeText) {
  Config config;
  config.data.paths = {"text"};
  EXPECT_NO_THROW(validate(config));
}

}  // namespace
}  // namespace tutti::train
