#include "tutti/ops/triangle.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/where.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();

Tensor numbered(const Shape& sizes, DType dtype = DType::f32) {
  SymInt count = 1;
  for (const SymInt size : sizes) count *= size;
  return cast(reshape(arange(1, count + 1), sizes), dtype);
}

// The definition, by masks that have a kernel of their own.
Tensor expected(const Tensor& x, int64_t diagonal, bool upper) {
  const Tensor mask = upper ? triu_mask(x.size(-2), x.size(-1), diagonal) : tril_mask(x.size(-2), x.size(-1), diagonal);
  return where(mask, x, zeros_like(x));
}

TEST(Triangle, KeepsWhatTheMasksSay) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i64, DType::u8, DType::f64}) {
    for (const Shape& sizes : {Shape{4, 4}, Shape{3, 7}, Shape{7, 3}, Shape{2, 3, 5, 4}, Shape{1, 1}, Shape{0, 3},
                               Shape{3, 0}, Shape{0, 2, 2}}) {
      const Tensor x = numbered(sizes, dtype);
      for (int64_t diagonal = -8; diagonal <= 8; ++diagonal) {
        const std::string what = fmt::format("{} diagonal {}", describe(x), diagonal);
        expect_same_bits(tril(x, diagonal), expected(x, diagonal, false), "tril of " + what);
        expect_same_bits(triu(x, diagonal), expected(x, diagonal, true), "triu of " + what);
      }
    }
  }
}

TEST(Triangle, TakesViewsAsTheyAreAndCopies) {
  const Tensor whole = numbered({6, 8});
  const Tensor x = slice(transpose(whole, 0, 1), 0, 1, 8, 2);  // [4, 6]
  const Tensor lower = tril(x), upper = triu(x, 1);
  expect_same_bits(lower, expected(x, 0, false));
  expect_same_bits(upper, expected(x, 1, true));
  fill_(x, -1.0);
  EXPECT_EQ(lower.data<float>()[0], 2.0F) << "a later write of the view must not reach the result";
  expect_same_bits(tril(x), expected(x, 0, false), "after the write");
  const Tensor rows = expand(numbered({1, 5}), {4, 5});
  expect_same_bits(triu(rows, -1), expected(rows, -1, true), "rows that share their memory");
}

TEST(Triangle, FarDiagonalsKeepAllOrNothing) {
  const Tensor x = numbered({3, 4});
  for (const int64_t far : {kMost, kMost - 1}) {
    expect_same_bits(tril(x, far), x);
    expect_same_bits(triu(x, far), zeros_like(x));
  }
  for (const int64_t far : {kLeast, kLeast + 1}) {
    expect_same_bits(tril(x, far), zeros_like(x));
    expect_same_bits(triu(x, far), x);
  }
}

TEST(Triangle, LeavesOutElementsThatAreNoNumbers) {
  const Tensor x = full({2, 2}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(tril(x).data<float>()[1], 0.0F);
  EXPECT_EQ(triu(x).data<float>()[2], 0.0F);
}

TEST(Triangle, HasTheSameBitsOnAnyThreads) {
  const Tensor x = numbered({3, 301, 257});
  RankContext::current().set_threads(1);
  const Tensor one = tril(x, 5);
  for (const int threads : {2, 3, 4}) {
    RankContext::current().set_threads(threads);
    expect_same_bits(tril(x, 5), one, fmt::format("{} threads", threads));
  }
  RankContext::current().set_threads(1);
  expect_same_bits(one, expected(x, 5, false));
}

TEST(Triangle, IsOneOfTwoDims) {
  EXPECT_EQ(message_of([] { tril(ones({3})); }),
            "tril: x is [3] f32 cpu; a triangle is one of the last two dims, so give at least two");
  EXPECT_THROW(triu(ones({})), UsageError);
}

}  // namespace
}  // namespace tutti
