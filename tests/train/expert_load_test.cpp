#include "tutti/train/step/expert_load.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tutti/train/report/metrics.h"

namespace tutti::train {
namespace {

TEST(ExpertLoad, SaysHowUnequalLoadsAre) {
  const ExpertLoad equal{.tokens = {5, 5, 5, 5}}, one{.tokens = {0, 20, 0, 0}}, half{.tokens = {10, 10, 0, 0}},
      none{.tokens = {0, 0}};
  EXPECT_EQ(max_over_mean(equal), 1);
  EXPECT_EQ(max_over_mean(one), 4);
  EXPECT_EQ(max_over_mean(half), 2);
  EXPECT_EQ(max_over_mean(none), 0);
  EXPECT_NEAR(entropy_of(equal), 1, 1e-12);
  EXPECT_EQ(entropy_of(one), 0);
  EXPECT_NEAR(entropy_of(half), 0.5, 1e-12);
  EXPECT_EQ(entropy_of(none), 0);
  EXPECT_EQ(entropy_of({.tokens = {3}}), 1);
  EXPECT_EQ(starved_in(equal), 0);
  EXPECT_EQ(starved_in(half), 2);
}

TEST(ExpertLoad, StandsInTheRecordOfAStep) {
  const StepRecord record{.step = 3,
                          .experts = {{.layer = 0, .tokens = {3, 1}, .bias_min = -0.5f, .bias_max = 0.25f},
                                      {.layer = 1, .tokens = {0, 4}}}};
  const std::string line = to_json(record);
  EXPECT_NE(line.find(R"(,"experts":[{"layer":0,"tokens":[3,1],"max_over_mean":1.5,"entropy":0.811)"),
            std::string::npos)
      << line;
  EXPECT_NE(
      line.find(
          R"("bias_min":-0.5,"bias_max":0.25,"starved":0},{"layer":1,"tokens":[0,4],"max_over_mean":2,"entropy":0,"bias_min":0,"bias_max":0,"starved":1}]})"),
      std::string::npos)
      << line;
  EXPECT_EQ(to_json(parse_record(line, "here")), line);
  EXPECT_EQ(to_json(StepRecord{}).find("experts"), std::string::npos) << "a dense model has none";
}

TEST(ExpertLoad, OfAnotherShapeIsRefused) {
  std::string line = to_json(StepRecord{.step = 3, .experts = {{.tokens = {3, 1}}}});
  line.replace(line.find("[3,1]"), 5, "[3,-1]");
  EXPECT_NE(message_of([&] { parse_record(line, "here"); }).find("tokens"), std::string::npos)
      << message_of([&] { parse_record(line, "here"); });
}

}  // namespace
}  // namespace tutti::train
