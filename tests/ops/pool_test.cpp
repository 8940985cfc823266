#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/message_of.h"
#include "tutti/ops/avg_pool.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/max_pool.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

std::vector<float> floats(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.numel()}; }
std::vector<int64_t> integers(const Tensor& t) { return {t.data<int64_t>(), t.data<int64_t>() + t.numel()}; }
Tensor line(std::vector<float> values) {
  const int64_t n = static_cast<int64_t>(values.size());
  return Tensor::of<float>(values, {1, 1, n});
}

TEST(MaxPool, TakesTheFirstOfEqualElementsAndNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const MaxPoolResult r = max_pool1d_with_indices(line({1, 5, 5, 2, nan, 7}), {.kernel = {3}, .stride = {1}});
  EXPECT_EQ(integers(r.indices), (std::vector<int64_t>{1, 1, 4, 4}));
  EXPECT_EQ(r.values.data<float>()[1], 5.0f);
  EXPECT_TRUE(std::isnan(r.values.data<float>()[3]));
  EXPECT_EQ(floats(max_pool1d(line({-3, -2}), {.kernel = {2}, .padding = {1}})), (std::vector<float>{-3, -2}));
}

TEST(MaxPool, CountsALastWindowWithCeilMode) {
  const Tensor x = line({1, 2, 3, 4, 5});
  EXPECT_EQ(floats(max_pool1d(x, {.kernel = {2}})), (std::vector<float>{2, 4}));
  EXPECT_EQ(floats(max_pool1d(x, {.kernel = {2}, .ceil_mode = true})), (std::vector<float>{2, 4, 5}));
  // A third window would begin in the padding behind x.
  EXPECT_EQ(floats(max_pool1d(line({1, 2, 3}), {.kernel = {2}, .stride = {2}, .padding = {1}, .ceil_mode = true})),
            (std::vector<float>{1, 3}));
  EXPECT_EQ(floats(max_pool1d(x, {.kernel = {2}, .stride = {1}, .dilation = {3}})), (std::vector<float>{4, 5}));
}

TEST(MaxPool, IndicesCountThePlane) {
  const Tensor x = facets::sample_tensor(1, {2, 3, 4, 5, 6});
  const MaxPoolResult r = max_pool3d_with_indices(x, {.kernel = {2, 3, 2}, .stride = {1}});
  for (int64_t i = 0; i < r.values.numel(); ++i) {
    const int64_t plane = i / (r.values.numel() / 6);
    EXPECT_EQ(r.values.data<float>()[i], x.data<float>()[plane * 120 + r.indices.data<int64_t>()[i]]);
  }
  EXPECT_EQ(max_pool2d(Tensor::empty({3, 4, 6}), {.kernel = {2}}).extents(), (Extents{3, 2, 3}));
}

TEST(AdaptiveMaxPool, CoversEveryElement) {
  const MaxPoolResult r = adaptive_max_pool1d_with_indices(line({1, 9, 3, 4, 8, 6, 7}), {3});  // [0, 3) [2, 5) [4, 7)
  EXPECT_EQ(floats(r.values), (std::vector<float>{9, 8, 8}));
  EXPECT_EQ(integers(r.indices), (std::vector<int64_t>{1, 4, 4}));
}

TEST(MaxPool, OfTheWholeRangeOfIntegers) {
  constexpr int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  const MaxPoolResult r = max_pool1d_with_indices(
      Tensor::of<int64_t>({most - 1, most, most, least, least, least + 1}, {1, 1, 6}), {.kernel = {3}});
  EXPECT_EQ(integers(r.values), (std::vector<int64_t>{most, least + 1}));
  EXPECT_EQ(integers(r.indices), (std::vector<int64_t>{1, 5}));
}

TEST(AdaptivePooling, KeepsASizeForMinusOne) {
  const Tensor x = facets::sample_tensor(1, {2, 3, 4, 5});
  EXPECT_EQ(adaptive_avg_pool2d(x, {-1, 2}).extents(), (Extents{2, 3, 4, 2}));
  EXPECT_EQ(floats(adaptive_max_pool2d(x, {-1})), floats(x));
}

TEST(MaxUnpool, PutsElementsBack) {
  const Tensor x = line({1, 5, 3, 2, 8, 7});
  const MaxPoolResult r = max_pool1d_with_indices(x, {.kernel = {2}});
  EXPECT_EQ(floats(max_unpool(r.values, r.indices, {6})), (std::vector<float>{0, 5, 3, 0, 8, 0}));
  EXPECT_THROW(max_unpool(r.values, r.indices, {4}), UsageError);
  EXPECT_EQ(message_of([&] { max_unpool(r.values, zeros({1, 1, 2}, DType::i64), {6}); }),
            "max_unpool: x is [1, 1, 3] f32 cpu, the indices [1, 1, 2] i64 cpu, for 1 spatial sizes; expected equal "
            "sizes, [N, C, P...] or "
            "[C, P...]");
}

TEST(AvgPool, DividesByWhatOptionsSay) {
  const Tensor x = line({1, 2, 3, 4, 5});
  EXPECT_EQ(floats(avg_pool1d(x, {.kernel = {2}})), (std::vector<float>{1.5f, 3.5f}));
  EXPECT_EQ(floats(avg_pool1d(x, {.kernel = {2}, .ceil_mode = true})), (std::vector<float>{1.5f, 3.5f, 5}));
  EXPECT_EQ(floats(avg_pool1d(x, {.kernel = {3}, .stride = {2}, .padding = {1}})), (std::vector<float>{1, 3, 3}));
  EXPECT_EQ(floats(avg_pool1d(x, {.kernel = {3}, .stride = {2}, .padding = {1}, .count_include_pad = false})),
            (std::vector<float>{1.5f, 3, 4.5f}));
  EXPECT_EQ(floats(avg_pool1d(x, {.kernel = {2}, .divisor_override = 4})), (std::vector<float>{0.75f, 1.75f}));
  // The last window has one element of x and one of the padding; what lies beyond that does not count.
  EXPECT_EQ(floats(avg_pool1d(line({1, 2, 3, 4}), {.kernel = {3}, .stride = {2}, .padding = {1}, .ceil_mode = true})),
            (std::vector<float>{1, 3, 2}));
  EXPECT_EQ(message_of([&] { avg_pool1d(x, {.kernel = {2}, .divisor_override = 0}); }),
            "avg_pool1d: divisor_override is 0; expected another number");
}

TEST(AdaptiveAvgPool, OfOneWindowIsTheMean) {
  const Tensor x = facets::sample_tensor(1, {2, 3, 31, 40});
  const Tensor pooled = adaptive_avg_pool2d(x, {1}),
               mean = truediv(sum(reshape(x, {2, 3, 1240}), {.dims = {2}}), 1240.0);
  EXPECT_EQ(std::memcmp(pooled.raw_data(), mean.raw_data(), 24), 0);
  EXPECT_EQ(floats(adaptive_avg_pool1d(line({1, 2, 3, 4, 5}), {2})), (std::vector<float>{2, 4}));  // [0, 3) [2, 5)
}

TEST(AvgPool, SumsEveryWindowInTheTreeOfReductions) {
  const Tensor x = facets::sample_tensor(1, {1, 2, 2000});
  for (const int64_t taps : {1, 3, 15, 16, 17, 25, 49, 512, 513, 1100}) {
    for (const int64_t stride : {1, 3}) {
      const Tensor y = avg_pool1d(x, {.kernel = {taps}, .stride = {stride}});
      const int64_t count = y.extents()[2];
      for (int64_t o = 0; o < 2 * count; o += 7) {
        const Tensor window = slice(reshape(x, {2, 2000}), 1, o % count * stride, o % count * stride + taps);
        const Tensor mean = truediv(sum(window, {.dims = {1}}), static_cast<double>(taps));
        EXPECT_EQ(y.data<float>()[o], mean.data<float>()[o / count])
            << taps << " taps, " << stride << " apart, window " << o;
      }
    }
  }
}

TEST(Pooling, HasTheSameBitsOnAnyNumberOfThreads) {
  const Tensor x = facets::sample_tensor(1, {3, 7, 40, 33});
  RankContext& context = RankContext::current();
  const auto run = [&](int threads) {
    context.set_threads(threads);
    return std::vector<Tensor>{max_pool2d(x, {.kernel = {3}, .stride = {2}, .padding = {1}}),
                               avg_pool2d(x, {.kernel = {3}, .stride = {1}, .padding = {1}})};
  };
  const std::vector<Tensor> one = run(1), four = run(4);
  context.set_threads(0);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(std::memcmp(one[i].raw_data(), four[i].raw_data(), static_cast<size_t>(one[i].nbytes())), 0);
}

TEST(Pooling, NamesTheFormula) {
  const Tensor x = zeros({1, 1, 4, 9});
  EXPECT_EQ(message_of([&] { max_pool2d(x, {.kernel = {5, 2}}); }),
            "max_pool2d: no output along spatial dim 0: its size would be floor((size + 2 * padding - dilation * "
            "(kernel - 1) - 1) / "
            "stride) + 1 = "
            "floor((4 + 2 * 0 - 1 * (5 - 1) - 1) / 5) + 1, and a window reaches over 5 elements");
  EXPECT_EQ(message_of([&] { avg_pool2d(x, {.kernel = {2}, .padding = {2}}); }),
            "avg_pool2d: padding 2 along spatial dim 0; expected 0 to half of the 2 elements a window reaches over, 1");
  EXPECT_EQ(message_of([&] { max_pool1d(zeros({1, 1, 1}), {.kernel = {2}, .padding = {1}, .dilation = {2}}); }),
            "max_pool1d: window 0 along spatial dim 0 has no element: of its 2 taps, 2 apart from -1 on, none lies in "
            "[0, 1)");
  EXPECT_EQ(message_of([&] { max_pool2d(x, {.kernel = {0}}); }),
            "max_pool2d: kernel size 0, stride 0, dilation 1 along spatial dim 0; expected 1 or more of each");
  EXPECT_EQ(message_of([&] { max_pool2d(x, {.kernel = {1, 2, 3}}); }),
            "max_pool2d: kernel has 3 numbers; expected 1 or 2, one for each spatial dim");
  EXPECT_EQ(message_of([&] { adaptive_avg_pool2d(x, {0}); }),
            "adaptive_avg_pool2d: 0 windows over 4 elements along spatial dim 0; expected 1 or more of both");
  EXPECT_EQ(message_of([&] { max_pool1d(x, {.kernel = {2}}); }),
            "max_pool1d: x is [1, 1, 4, 9] f32 cpu; expected [N, C, 1 spatial dims] or without N");
  EXPECT_EQ(message_of([&] { avg_pool2d(zeros({1, 1, 4, 4}, DType::i64), {.kernel = {2}}); }),
            "avg_pool2d: x is [1, 1, 4, 4] i64 cpu; expected f64, f32, bf16 or f16, cast() it");
  EXPECT_EQ(message_of([&] { max_pool2d(zeros({1, 1, 4, 4}, DType::boolean), {.kernel = {2}}); }),
            "max_pool2d: x is [1, 1, 4, 4] bool cpu; expected f64, f32, bf16, f16 or integers, cast() it");
}

}  // namespace
}  // namespace tutti
