#include "tutti/train/config.h"

#include <gtest/gtest.h>

namespace tutti::train {
namespace {

TEST(Config, IsValidWithDefaultsAndSomeText) {
  Config config;
  config.data.paths = {"text"};
  EXPECT_NO_THROW(validate(config));
}

}  // namespace
}  // namespace tutti::train
