// Large results have memory from the step that writes them first: a call needs no more than its ops, one by one.
#include <gtest/gtest.h>

#include "tests/graph/support/same.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using graph_test::expect_same;
using graph_test::values;

// 128 KiB; smaller tensors share an arena.
const Extents kSizes{128, 256};

template <class Fn>
int64_t peak_of(Fn&& call) {
  Allocator& allocator = RankContext::current().allocator();
  call();
  allocator.reset_peak();
  const int64_t before = allocator.statistics().current_bytes;
  call();
  return allocator.statistics().peak_bytes - before;
}

TEST(ResultMemory, AChainNeedsWhatItsOpsNeed) {
  const auto fn = [](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 6; ++i) y = softmax(y, -1);
    return y;
  };
  const auto f = compile(fn);
  const Tensor x = values(kSizes, 1);
  const int64_t eager = peak_of([&] { fn(x); }), compiled = peak_of([&] { f(x); });
  EXPECT_EQ(f.statistics().last.kernels, 6);
  EXPECT_LE(compiled, eager);
}

// Results that are written early, late, twice, as views of each other, and never.
TEST(ResultMemory, EveryResultHasItsElements) {
  const auto fn = [](const Tensor& x, const Tensor& y) {
    const Tensor early = softmax(x, -1), late = softmax(softmax(early, -1), -1);
    const Tensor written = mul(early, 2.0);
    add_(written, y);
    const Tensor half = slice(late, 0, 0, 64);
    return std::vector<Tensor>{early, late, written, half, transpose(late, 0, 1), x, zeros({0, 300}), add(y, 0.0)};
  };
  const auto f = compile(fn);
  for (const uint64_t seed : {1, 2, 3}) {
    const Tensor x = values(kSizes, seed), y = values(kSizes, seed + 10);
    const std::vector<Tensor> is = f(x, y), expected = fn(x, y);
    ASSERT_EQ(is.size(), expected.size());
    for (size_t i = 0; i < is.size(); ++i) expect_same(is[i], expected[i]);
  }
}

// What a call returned is not touched by the next one, and a call that failed leaves nothing to the next one.
TEST(ResultMemory, CallsDoNotShareResults) {
  const auto fn = [](const Tensor& x, const Tensor& divisor) {
    return std::pair(softmax(x, -1), truncdiv(cast(mul(x, 100.0), DType::i64), divisor));
  };
  const auto f = compile(fn);
  const Tensor one = cast(ones(to_shape(kSizes)), DType::i64), zero = cast(zeros(to_shape(kSizes)), DType::i64);
  const Tensor x = values(kSizes, 1), other = values(kSizes, 2);
  const auto first = f(x, one);
  EXPECT_THROW(f(other, zero), IntegerDivideByZero);
  const auto second = f(other, one);
  expect_same(first.first, softmax(x, -1));
  expect_same(second.first, softmax(other, -1));
  expect_same(second.second, fn(other, one).second);
}

}  // namespace
}  // namespace tutti
