#include <gtest/gtest.h>

#include <cstring>

#include "tutti/core/error.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
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

// 1 + weight is a sum in f32, also where the weight is bf16, and the row is rounded once.
TEST(Norm, AZeroCenteredWeightIsAddedToOne) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = facets::sample_tensor(1, {5, 33}, dtype), w = facets::sample_tensor(2, {33}, dtype);
    const Tensor by_factor = rms_norm(x, add(cast(w, DType::f32), 1.0), 1e-5);
    const Tensor centered = rms_norm(x, w, 1e-5, NormWeight::zero_centered);
    ASSERT_EQ(centered.dtype(), dtype);
    EXPECT_EQ(std::memcmp(by_factor.raw_data(), centered.raw_data(), static_cast<size_t>(centered.nbytes())), 0);
  }
}

TEST(Norm, ARowOfEqualElementsIsItsBias) {
  const Tensor y = layer_norm(full({1, 4}, 3.0), ones({4}), full({4}, 0.5));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(y.data<float>()[i], 0.5f);
}

}  // namespace
}  // namespace tutti
