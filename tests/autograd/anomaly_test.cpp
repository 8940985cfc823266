#include "tutti/autograd/anomaly.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/autograd/backward.h"
#include "tutti/ops.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti {
namespace {

Tensor leaf(std::vector<float> values) {
  const Tensor t = Tensor::of<float>(values);
  requires_grad_(t);
  return t;
}

template <class Fn>
std::string message(Fn fn) {
  try {
    fn();
  } catch (const NanError& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Anomaly, NamesTheOpAndTheLineOfTheForward) {
  const Tensor x = leaf({1, -1});
  const AnomalyScope scope;
  const std::string text = message([&] {
    const ModuleScope module("encoder");
    const Tensor y = log(x);
    add(y, 1.0);
  });
  EXPECT_NE(text.find("log made the first NaN, in its result 0 ([2] f32 cpu)"), std::string::npos) << text;
  EXPECT_NE(text.find("anomaly_test.cpp:"), std::string::npos) << text;
  EXPECT_NE(text.find("in module 'encoder'"), std::string::npos) << text;
}

// sqrt has an infinite slope at 0, and 0 times infinity is NaN.
TEST(Anomaly, NamesTheOpWhoseGradientIsNaN) {
  const Tensor x = leaf({0, 4});
  const AnomalyScope scope;
  Tensor y;
  {
    const ModuleScope module("norm");
    y = mul(sqrt(x), Tensor::of<float>({0, 1}));
  }
  const std::string text = message([&] { backward(sum(y)); });
  EXPECT_NE(text.find("in the backward of sqrt"), std::string::npos) << text;
  EXPECT_NE(text.find("anomaly_test.cpp:"), std::string::npos) << text;
  EXPECT_NE(text.find("in module 'norm'"), std::string::npos) << text;
}

TEST(Anomaly, PassesNaNsThatWereThereOn) {
  const AnomalyScope scope;
  const Tensor x = Tensor::of<float>({NAN});
  EXPECT_TRUE(std::isnan(add(x, 1.0).item()));
}

TEST(Anomaly, LooksOnlyWhileItLives) {
  {
    const AnomalyScope scope;
  }
  EXPECT_TRUE(std::isnan(log(Tensor::of<float>({-1})).item()));
}

TEST(Anomaly, SeesIntegersEmptyAndNarrowTensors) {
  const AnomalyScope scope;
  EXPECT_EQ(add(Tensor::of<int64_t>({1}), 1).item_int(), 2);
  EXPECT_EQ(log(Tensor::empty({0})).numel(), 0);
  EXPECT_NE(message([&] { log(cast(Tensor::of<float>({-1}), DType::bf16)); }).find("log made the first NaN"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti
