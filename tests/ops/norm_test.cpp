#include <gtest/gtest.h>

#include "tutti/core/error.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/layer_norm.h"
#include "tutti/ops/rms_norm.h"

namespace tutti {
namespace {

TEST(Norm, RefusesStorageTypesAndIntegers) {
  for (const DType dtype : {DType::f8e4m3fn, DType::f8e5m2, DType::i32, DType::boolean}) {
    const Tensor x = zeros({2, 3}, dtype), w = ones({3});
    EXPECT_THROW(rms_norm(x, w), UsageError) << name_of(dtype);
    EXPECT_THROW(layer_norm(x, w, w), UsageError) << name_of(dtype);
  }
}

TEST(Norm, WeightMustHaveTheTrailingDims) {
  try {
    rms_norm(zeros({2, 3}), ones({2}));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "rms_norm: weight is [2], which are not the trailing dims of x [2, 3]");
  }
}

TEST(Norm, ANumberHasNoDimToNormalizeOver) {
  const Tensor x = full({}, 3.0);
  const auto error_of = [](auto call) -> std::string {
    try {
      call();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  const std::string rest = ": x is [] f32 cpu, which has no dim to normalize over; reshape it to [1] to have one";
  EXPECT_EQ(error_of([&] { layer_norm(x, {}, {}); }), "layer_norm" + rest);
  EXPECT_EQ(error_of([&] { layer_norm(x, ones({1}), {}); }), "layer_norm" + rest);
  EXPECT_EQ(error_of([&] { layer_norm(x, ones({1}), ones({1})); }), "layer_norm" + rest);
  EXPECT_EQ(error_of([&] { rms_norm(x, {}); }), "rms_norm" + rest);
  EXPECT_EQ(error_of([&] { rms_norm(x, ones({1})); }), "rms_norm" + rest);
}

TEST(Norm, ARowOfEqualElementsIsItsBias) {
  const Tensor y = layer_norm(full({1, 4}, 3.0), ones({4}), full({4}, 0.5));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(y.data<float>()[i], 0.5f);
}

}  // namespace
}  // namespace tutti
