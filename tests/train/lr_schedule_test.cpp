#include "tutti/train/step/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::train {
namespace {

std::vector<double> factors(const LrSchedule::Options& options) {
  const LrSchedule schedule(options);
  std::vector<double> result;
  for (int64_t step = 1; step <= options.total_steps; ++step) result.push_back(schedule.factor(step));
  return result;
}

TEST(LrSchedule, FollowsTheTenStepExample) {
  EXPECT_EQ(factors({.warmup_steps = 2, .total_steps = 10, .decay_ratio = 0.8}),
            (std::vector<double>{.5, 1, 1, .875, .75, .625, .5, .375, .25, .125}));
}

TEST(LrSchedule, DecaysOverEverythingAfterTheWarmUpWithoutARatio) {
  EXPECT_EQ(factors({.warmup_steps = 1, .total_steps = 5}), (std::vector<double>{1, 1, .75, .5, .25}));
}

TEST(LrSchedule, ClipsADecayThatOverlapsTheWarmUp) {
  const LrSchedule schedule({.warmup_steps = 4, .total_steps = 10, .decay_ratio = 0.9});
  EXPECT_EQ(schedule.decay_steps(), 6);
}

TEST(LrSchedule, RoundsHalfADecayStepToTheEvenNeighbour) {
  EXPECT_EQ(LrSchedule({.total_steps = 10, .decay_ratio = 0.25}).decay_steps(), 2);
  EXPECT_EQ(LrSchedule({.total_steps = 10, .decay_ratio = 0.35}).decay_steps(), 4);
}

TEST(LrSchedule, StaysFlatWithoutADecay) {
  EXPECT_EQ(factors({.total_steps = 4, .decay_ratio = 0.0}), (std::vector<double>{1, 1, 1, 1}));
}

TEST(LrSchedule, FollowsTheSquareRoot) {
  EXPECT_EQ(factors({.total_steps = 4, .decay = LrDecay::kSqrt}),
            (std::vector<double>{1, 1 - std::sqrt(.25), 1 - std::sqrt(.5), 1 - std::sqrt(.75)}));
}

TEST(LrSchedule, FollowsTheCosine) {
  EXPECT_EQ(LrSchedule({.total_steps = 4, .decay = LrDecay::kCosine}).factor(2),
            0.5 * (1 + std::cos(std::numbers::pi * .25)));
}

TEST(LrSchedule, DecaysTowardsTheSmallestFactor) {
  EXPECT_EQ(factors({.total_steps = 4, .min_factor = 0.5}), (std::vector<double>{1, .875, .75, .625}));
}

TEST(LrSchedule, KeepsTheLastValueBehindTheEnd) {
  const LrSchedule schedule({.total_steps = 4});
  EXPECT_EQ(schedule.factor(100), schedule.factor(4));
}

TEST(LrSchedule, RefusesValuesOutOfRange) {
  EXPECT_THROW(LrSchedule({.warmup_steps = 11, .total_steps = 10}), UsageError);
  EXPECT_THROW(LrSchedule({.total_steps = 0}), UsageError);
  EXPECT_THROW(LrSchedule({.total_steps = 10, .decay_ratio = 1.5}), UsageError);
  EXPECT_THROW(LrSchedule({.total_steps = 10, .min_factor = -0.1}), UsageError);
  EXPECT_THROW(LrSchedule({.total_steps = 10}).factor(0), UsageError);
}

TEST(LrDecay, NamesTheNearestKnownOne) {
  EXPECT_EQ(parse_lr_decay("cosine"), LrDecay::kCosine);
  try {
    parse_lr_decay("cosin");
    FAIL() << "it was accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'cosine'?"), std::string::npos) << error.what();
  }
}

TEST(LrSchedule, AUsualWarmupIsATenthOfTheRunAndNeverLong) {
  EXPECT_EQ(usual_warmup(1), 0);
  EXPECT_EQ(usual_warmup(99), 9);
  EXPECT_EQ(usual_warmup(2000), 200);
  EXPECT_EQ(usual_warmup(1'000'000), 200);
}

}  // namespace
}  // namespace tutti::train
