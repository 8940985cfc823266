#include "tutti/ops/inplace.h"

#include <gtest/gtest.h>

#include "tutti/ops/copy.h"

namespace tutti {
namespace {

TEST(Inplace, WritesTheTargetAndGivesIt) {
  const Tensor x = Tensor::of<float>({1, 2, 3});
  const Tensor y = mul_(x, 2.0);
  EXPECT_EQ(y.raw_data(), x.raw_data());
  EXPECT_EQ(x.data<float>()[2], 6.0f);
}

TEST(Inplace, RaisesTheVersion) {
  const Tensor x = Tensor::of<float>({1, 2, 3});
  const uint32_t before = x.version();
  add_(x, x);
  EXPECT_EQ(x.version(), before + 1);
  EXPECT_EQ(x.data<float>()[1], 4.0f);
}

TEST(Inplace, WritesThroughAView) {
  const Tensor x = Tensor::of<float>({1, 2, 3, 4}, {2, 2});
  fill_(x.view_as({2}, {2}, 1), 9);
  EXPECT_EQ(x.data<float>()[0], 1.0f);
  EXPECT_EQ(x.data<float>()[1], 9.0f);
  EXPECT_EQ(x.data<float>()[3], 9.0f);
}

TEST(Inplace, AddsAnF32GradientToABf16TargetInF32) {
  Tensor x = Tensor::empty({1}, DType::bf16);
  *x.data<bfloat16>() = to_bfloat16(256.0f);
  add_(x, Tensor::of<float>({1.5f}));  // 257.5 rounds to 258; 1.5 alone would not have moved 256 to it in two steps
  EXPECT_EQ(x.item(), 258.0);
}

TEST(Inplace, RefusesFloatsIntoIntegers) {
  EXPECT_THROW(mul_(Tensor::of<int64_t>({1}), 0.5), UsageError);
  EXPECT_THROW(fill_(Tensor::of<int64_t>({1}), 0.5), UsageError);
}

TEST(Inplace, RefusesToGrowTheTarget) {
  EXPECT_THROW(add_(Tensor::of<float>({1}), Tensor::of<float>({1, 2})), UsageError);
}

TEST(Inplace, RefusesReadOnlyMemory) {
  const Tensor x = Tensor::of<float>({1});
  x.storage()->set_read_only();
  EXPECT_THROW(zero_(x), UsageError);
}

TEST(Inplace, ReadsWhatItIsAboutToOverwriteFirst) {
  for (const int64_t n : {5, 100, 40000}) {
    std::vector<float> values(static_cast<size_t>(n));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const Tensor x = Tensor::of(values);
    copy_(x.view_as({n - 1}, {1}, 1), x.view_as({n - 1}, {1}, 0));
    for (int64_t i = 1; i < n; ++i) ASSERT_EQ(x.data<float>()[i], static_cast<float>(i - 1)) << n;
    const Tensor y = Tensor::of(values);
    add_(y.view_as({n}, {1}, 0), y.view_as({n}, {-1}, n - 1));
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y.data<float>()[i], static_cast<float>(n - 1)) << n;
  }
}

TEST(Inplace, RefusesAnExpandedTarget) {
  const Tensor x = Tensor::of<float>({1, 2});
  try {
    add_(x.view_as({3, 2}, {0, 1}, 0), Tensor::of<float>({1, 1}));
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("dim 0"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("expanded"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tutti
