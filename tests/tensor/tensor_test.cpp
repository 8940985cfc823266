#include "tutti/tensor/tensor.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <numeric>
#include <string>

#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

std::string usage_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

Tensor counting(const Extents& sizes) {
  std::vector<float> values(static_cast<size_t>(numel_of(sizes)));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::of(values, sizes);
}

TEST(Tensor, IsUndefinedUntilItIsMade) {
  Tensor t;
  EXPECT_FALSE(t.defined());
  EXPECT_EQ(describe(t), "<undefined>");
  EXPECT_THROW(t.item(), UsageError);
  EXPECT_THROW(copy_elements(t, t), UsageError);
}

TEST(Tensor, EmptyIsDenseRowMajor) {
  const Tensor t = Tensor::empty({2, 3, 4}, DType::bf16);
  EXPECT_EQ(t.strides(), (Extents{12, 4, 1}));
  EXPECT_EQ(t.numel(), 24);
  EXPECT_EQ(t.nbytes(), 48);
  EXPECT_TRUE(t.is_contiguous());
  EXPECT_EQ(t.device(), kCpu);
  EXPECT_EQ(describe(t), "[2, 3, 4] bf16 cpu");
}

TEST(Tensor, ZeroDimsAndZeroSizesAreOrdinary) {
  const Tensor scalar = Tensor::scalar(2.5);
  EXPECT_EQ(scalar.ndim(), 0);
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_EQ(scalar.item(), 2.5);
  const Tensor none = Tensor::empty({3, 0});
  EXPECT_EQ(none.numel(), 0);
  EXPECT_TRUE(none.is_contiguous());
}

TEST(Tensor, OneWithoutElementsIsContiguousWhateverItsStrides) {
  EXPECT_TRUE(Tensor::empty_strided({0, 2}, {1, 7}, DType::f32).is_contiguous());
}

TEST(Tensor, HoldsTheValuesItWasGiven) {
  EXPECT_EQ(Tensor::of<int64_t>({-7}).item_int(), -7);
  const Tensor flags = Tensor::of<bool>({true, false, true});
  EXPECT_EQ(flags.dtype(), DType::boolean);
  EXPECT_TRUE(flags.data<bool>()[2]);
  EXPECT_EQ(usage_error_of([] { Tensor::of<float>({1, 2, 3}, {2, 2}); }),
            "Tensor::of: 3 values for shape [2, 2] (3 vs 4)");
}

TEST(Tensor, NegativeSizesAreRefused) {
  EXPECT_EQ(usage_error_of([] { Tensor::empty({2, -1}); }), "empty: sizes [2, -1] hold a negative size");
}

TEST(Tensor, SizesThatOverflowAreRefused) {
  EXPECT_THROW(Tensor::empty({int64_t{1} << 40, int64_t{1} << 40}), SymIntOverflow);
  EXPECT_THROW(Tensor::empty({int64_t{1} << 61}, DType::f64), SymIntOverflow);
}

TEST(Tensor, TooLargeAnAllocationIsAnEnvironmentError) {
  EXPECT_THROW(Tensor::empty({int64_t{1} << 49}, DType::u8), EnvironmentError);
}

TEST(EmptyStrided, AllocatesUpToTheLastElement) {
  const Tensor t = Tensor::empty_strided({3, 2}, {1, 4}, DType::f32);
  EXPECT_EQ(t.storage()->nbytes(), (2 + 4 + 1) * 4);
  EXPECT_FALSE(t.is_contiguous());
  EXPECT_EQ(Tensor::empty_strided({0, 2}, {5, 5}, DType::f32).storage()->nbytes(), 0);
}

TEST(EmptyStrided, NamesABadStride) {
  EXPECT_EQ(usage_error_of([] { Tensor::empty_strided({2, 2}, {2, -1}, DType::f32); }),
            "empty_strided: invalid strides for dim 1: -1 (sizes [2, 2]); strides are not negative");
  EXPECT_THROW(Tensor::empty_strided({2, 2}, {1}, DType::f32), UsageError);
  EXPECT_THROW(Tensor::empty_strided({3}, {int64_t{1} << 62}, DType::f32), SymIntOverflow);
}

TEST(View, SharesTheStorage) {
  const Tensor base = counting({2, 3});
  const Tensor transposed = base.view_as({3, 2}, {1, 3}, 0);
  EXPECT_EQ(transposed.storage().get(), base.storage().get());
  transposed.data<float>()[0] = 42;
  EXPECT_EQ(base.data<float>()[0], 42);
}

TEST(View, KeepsTheStorageAlive) {
  Tensor view;
  {
    const Tensor base = counting({4});
    view = base.view_as({2}, {1}, 2);
  }
  EXPECT_EQ(view.data<float>()[1], 3);
  EXPECT_EQ(view.storage()->use_count(), 1);
}

TEST(View, MustLieInsideTheStorage) {
  const Tensor base = counting({6});
  EXPECT_NO_THROW(base.view_as({2, 3}, {3, 1}, 0));
  EXPECT_EQ(usage_error_of([&] { base.view_as({2, 3}, {3, 1}, 1); }),
            "view: sizes [2, 3], strides [3, 1], offset 1 reach elements 1 to 6, the storage holds 6 of f32");
  EXPECT_THROW(base.view_as({2}, {1}, -1), UsageError);
  EXPECT_THROW(base.view_as({7}, {1}, 0), UsageError);
  EXPECT_THROW(base.view_as({2}, {int64_t{1} << 62}, 0), UsageError);
  EXPECT_THROW(base.view_as({2}, {1}, std::numeric_limits<int64_t>::max()), SymIntOverflow);
}

TEST(View, MayRepeatOrReverseElements) {
  const Tensor base = counting({3});
  const Tensor repeated = base.view_as({4, 3}, {0, 1}, 0);
  EXPECT_EQ(repeated.numel(), 12);
  const Tensor reversed = base.view_as({3}, {-1}, 2);
  EXPECT_EQ(to_contiguous(reversed).data<float>()[0], 2);
  EXPECT_THROW(base.view_as({3}, {-1}, 1), UsageError);
}

TEST(View, WithoutElementsMayPointAnywhere) { EXPECT_NO_THROW(counting({3}).view_as({0}, {1}, 3)); }

TEST(FromMemory, ReleasesWhenTheLastTensorIsGone) {
  float values[4] = {1, 2, 3, 4};
  int released = 0;
  Tensor t = Tensor::from_memory(values, {2, 2}, DType::f32, [&] { ++released; });
  EXPECT_EQ(t.raw_data(), values);
  Tensor view = t.view_as({2}, {1}, 2);
  t = {};
  EXPECT_EQ(released, 0);
  EXPECT_EQ(view.data<float>()[0], 3);
  view = {};
  EXPECT_EQ(released, 1);
}

TEST(FromMemory, RefusesNullForElements) {
  EXPECT_EQ(usage_error_of([] { Tensor::from_memory(nullptr, {2}, DType::f32, {}); }),
            "from_memory: a null pointer for sizes [2] of f32");
  EXPECT_NO_THROW(Tensor::from_memory(nullptr, {0}, DType::f32, {}));
}

TEST(Tensor, DataOfAnotherTypeIsRefused) {
  EXPECT_EQ(usage_error_of([] { counting({1}).data<double>(); }), "data: the tensor holds f32, f64 was asked for");
}

TEST(Tensor, ItemWantsOneElement) {
  EXPECT_EQ(usage_error_of([] { counting({2}).item(); }),
            "item: the tensor [2] f32 cpu has 2 elements; expected exactly one");
  EXPECT_EQ(counting({1, 1, 1}).item(), 0);
}

TEST(Tensor, DimsCountFromBothEnds) {
  const Tensor t = counting({2, 3});
  EXPECT_EQ(t.extent(-1), 3);
  EXPECT_EQ(t.size(0).value(), 2);
  EXPECT_THROW(t.extent(2), UsageError);
}

TEST(Tensor, CountsItsMemoryUnderTheCurrentCategory) {
  RankContext context({});
  RankContext::Scope scope(context);
  const MemoryCategoryScope category(MemoryCategory::parameters);
  const Tensor t = Tensor::empty({32});
  EXPECT_EQ(context.allocator().statistics().current_by_category[static_cast<size_t>(MemoryCategory::parameters)], 128);
}

TEST(Tensor, MayOutliveTheRankThatMadeIt) {
  Tensor t;
  {
    RankContext context({});
    RankContext::Scope scope(context);
    t = counting({3});
  }
  EXPECT_EQ(t.data<float>()[2], 2);
}

TEST(CopyElements, CopiesBetweenAnyStrides) {
  const Tensor source = counting({2, 3}).view_as({3, 2}, {1, 3}, 0);
  const Tensor target = Tensor::empty_strided({3, 2}, {4, 2}, DType::f32);
  copy_elements(target, source);
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 2; ++j) EXPECT_EQ(target.data<float>()[i * 4 + j * 2], j * 3 + i);
  }
}

TEST(CopyElements, CopiesScalarsAndNothing) {
  const Tensor target = Tensor::scalar(0.0f);
  copy_elements(target, Tensor::scalar(5.0f));
  EXPECT_EQ(target.item(), 5);
  EXPECT_NO_THROW(copy_elements(Tensor::empty({0, 4}), Tensor::empty({0, 4})));
}

TEST(CopyElements, CopiesEveryDType) {
  for (int d = 0; d < kNumDTypes; ++d) {
    const DType dtype = static_cast<DType>(d);
    const Tensor source = Tensor::empty({3}, dtype);
    for (int64_t i = 0; i < 3; ++i)
      store_from_int64(static_cast<char*>(source.raw_data()) + i * itemsize(dtype), dtype, i % 2);
    const Tensor every_other = source.view_as({2}, {2}, 0);
    const Tensor packed = to_contiguous(every_other);
    EXPECT_EQ(load_as_int64(packed.raw_data(), dtype), 0) << name_of(dtype);
    EXPECT_EQ(packed.nbytes(), 2 * itemsize(dtype));
  }
}

TEST(CopyElements, WantsEqualSizesAndDTypes) {
  EXPECT_EQ(usage_error_of([] { copy_elements(Tensor::empty({2}), Tensor::empty({3})); }),
            "copy: the target is [2] f32 cpu, the source [3] f32 cpu; sizes and dtypes must agree");
  EXPECT_THROW(copy_elements(Tensor::empty({2}), Tensor::empty({2}, DType::f64)), UsageError);
}

TEST(ToContiguous, IsTheTensorItselfWhenItCanBe) {
  const Tensor t = counting({2, 3});
  EXPECT_TRUE(to_contiguous(t).is_same(t));
  const Tensor packed = to_contiguous(t.view_as({3, 2}, {1, 3}, 0));
  EXPECT_TRUE(packed.is_contiguous());
  EXPECT_EQ(packed.data<float>()[1], 3);
}

TEST(Storage, CountsInPlaceWrites) {
  const Tensor t = counting({2});
  const uint32_t before = t.version();
  t.storage()->bump_version();
  EXPECT_EQ(t.view_as({1}, {1}, 0).version(), before + 1);
}

}  // namespace
}  // namespace tutti
