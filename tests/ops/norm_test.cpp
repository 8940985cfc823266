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

TEST(Norm, ARowOfEqualElementsIsItsBias) {
  const Tensor y = layer_norm(full({1, 4}, 3.0), ones({4}), full({4}, 0.5));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(y.data<float>()[i], 0.5f);
}

}  // namespace
}  // namespace tutti
