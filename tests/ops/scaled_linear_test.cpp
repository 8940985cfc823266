#include "tutti/ops/scaled_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/as_strided.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/clamp.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using facets::sample_tensor;

Tensor codes(uint64_t seed, const Extents& sizes, DType dtype = DType::i8) {
  if (dtype == DType::f8e4m3fn) return sample_tensor(seed, sizes, dtype, -8, 8);
  return sample_tensor(seed, sizes, dtype, dtype == DType::u8 ? 0 : -128, dtype == DType::u8 ? 256 : 128);
}
Tensor scales(uint64_t seed, int64_t count) { return sample_tensor(seed, {count}, DType::f32, 0.001, 0.05); }
Tensor number(double value) { return full({1}, value); }
Tensor integer(int value) { return full({1}, value, DType::i32); }

// The integers by themselves, in 64 bits, then the arithmetic of the contract in f32.
Tensor product_of_codes(const Tensor& x, int zero_point, float x_scale, const ScaledWeight& w) {
  const int64_t m = x.extents()[0], k = x.extents()[1], n = w.codes.extents()[0];
  const Tensor y = Tensor::empty({m, n});
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      int64_t sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += (facets::read_int64(x, i * k + p) - zero_point) * facets::read_int64(w.codes, j * k + p);
      const float scale = w.scale.data<float>()[w.scale.numel() == 1 ? 0 : j];
      float value = static_cast<float>(sum) * (x_scale * scale);
      if (w.bias.defined()) value += w.bias.data<float>()[j];
      y.data<float>()[i * n + j] = value;
    }
  }
  return y;
}

// Each row by its own scale, by ops of other rooms.
Tensor rounded_rows(const Tensor& x, const Tensor& scale) {
  const Tensor inverse = truediv(full({}, 1.0), reshape(scale, {-1, 1}));
  return cast(clamp(round(mul(x, inverse)), {.min = -128.0, .max = 127.0}), DType::i8);
}

TEST(ScaledLinear, IsTheExactProductOfIntegerCodes) {
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 12, 13, 31, 64, 71})
    for (const int64_t n : {1, 7, 8, 16, 17, 35})
      for (const int64_t k : {0, 1, 2, 15, 16, 17, 31, 33, 128, 301})
        for (const DType dtype : {DType::i8, DType::u8}) {
          const int zero_point = dtype == DType::u8 ? 128 + static_cast<int>(k % 50) : static_cast<int>(m) - 7;
          const Tensor x = codes(1, {m, k}, dtype);
          const ScaledWeight w{codes(2, {n, k}), scales(3, n % 2 == 0 ? n : 1),
                               n % 3 == 0 ? sample_tensor(4, {n}) : Tensor()};
          expect_same_bits(scaled_linear(x, w, {.x = {number(0.013), integer(zero_point)}}),
                           product_of_codes(x, zero_point, 0.013F, w),
                           fmt::format("{} {} {} {}", m, n, k, name_of(dtype)));
        }
}

TEST(ScaledLinear, CodesAtTheirBoundsDoNotWrap) {
  const int64_t k = 65793;
  for (const int64_t m : {1, 7, 64}) {
    const Tensor x = full({m, k}, 255, DType::u8);
    const ScaledWeight w{full({3, k}, -128, DType::i8), number(1)};
    const Tensor y = scaled_linear(x, w, {.x = {number(1)}});
    EXPECT_EQ(y.data<float>()[3 * m - 1], static_cast<float>(-128.0 * 255 * k));
    expect_same_bits(scaled_linear(x, w, {.x = {number(1), integer(255)}}), zeros({m, 3}));
  }
  EXPECT_NE(message_of([&] {
              scaled_linear(zeros({1, k + 1}), {zeros({1, k + 1}, DType::i8), number(1)});
            }).find("the exact sum of more than 65793 may not fit 32 bits"),
            std::string::npos);
}

// A row at a time of floats gets the largest magnitude over 127 as its scale.
TEST(ScaledLinear, RowsOfNumbersGetScalesOfTheirOwn) {
  const Tensor x = sample_tensor(1, {9, 70}), w = codes(2, {20, 70}), of_w = scales(3, 20);
  for (int64_t i = 0; i < 9; ++i)
    for (int64_t p = 0; p < 70; ++p) x.data<float>()[i * 70 + p] *= static_cast<float>(std::pow(10.0, i - 5));
  Tensor of_x = Tensor::empty({9});
  for (int64_t i = 0; i < 9; ++i) {
    float largest = 0;
    for (int64_t p = 0; p < 70; ++p) largest = std::max(largest, std::abs(x.data<float>()[i * 70 + p]));
    of_x.data<float>()[i] = largest / 127.0F;
  }
  const Tensor y = scaled_linear(x, {w, of_w});
  expect_same_bits(scaled_linear(rounded_rows(x, of_x), {w, of_w}, {.x = {of_x}}), y);
  // What rounding x may change: half a code of each element.
  const Tensor exact =
      matmul(cast(x, DType::f64), transpose(mul(cast(w, DType::f64), reshape(cast(of_w, DType::f64), {20, 1})), 0, 1));
  for (int64_t i = 0; i < 9; ++i)
    for (int64_t j = 0; j < 20; ++j) {
      double allowed = 0;
      for (int64_t p = 0; p < 70; ++p)
        allowed += std::abs(static_cast<double>(w.data<int8_t>()[j * 70 + p]) * of_w.data<float>()[j]) * 0.5001 *
                   of_x.data<float>()[i];
      EXPECT_LE(std::abs(y.data<float>()[i * 20 + j] - exact.data<double>()[i * 20 + j]), allowed);
    }
}

TEST(ScaledLinear, RoundsNumbersToTheCodesOfAGivenScale) {
  const Tensor x = sample_tensor(1, {6, 40}, DType::f32, -3, 5);
  const float edges[] = {1e30F,
                         -1e30F,
                         std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity(),
                         std::numeric_limits<float>::quiet_NaN(),
                         0.01F,
                         0.03F,
                         -0.01F};
  std::copy(std::begin(edges), std::end(edges), x.data<float>());
  const ScaledWeight w{codes(2, {9, 40}), scales(3, 9)};
  for (const auto& [dtype, zero_point] : {std::pair{DType::u8, 93}, {DType::i8, -30}, {DType::i8, 0}}) {
    const double lowest = dtype == DType::u8 ? 0 : -128;
    const Tensor codes_of_x = Tensor::empty(x.extents(), dtype);
    for (int64_t e = 0; e < x.numel(); ++e) {
      const double value = std::nearbyint(static_cast<double>(x.data<float>()[e] * (1.0F / 0.02F))) + zero_point;
      facets::write_int64(codes_of_x, e,
                          static_cast<int64_t>(std::isnan(value) ? lowest : std::clamp(value, lowest, lowest + 255)));
    }
    const AffineScale scale{number(0.02), integer(zero_point)};
    expect_same_bits(scaled_linear(x, w, {.x = scale, .x_codes = dtype}), scaled_linear(codes_of_x, w, {.x = scale}));
    expect_same_bits(scaled_linear(narrow(x, 0, 3, 1), w, {.x = scale, .x_codes = dtype}),
                     scaled_linear(contiguous(narrow(codes_of_x, 0, 3, 1)), w, {.x = scale}));
  }
}

TEST(ScaledLinear, ResultsBecomeCodes) {
  for (const auto& [m, k] : {std::pair<int64_t, int64_t>{5, 33}, {70, 36}}) {
    const Tensor x = codes(1, {m, k}, DType::u8);
    const ScaledWeight w{codes(2, {18, k}), scales(3, 18), sample_tensor(4, {18})};
    const AffineScale of_x{number(0.02), integer(120)};
    const Tensor y = scaled_linear(x, w, {.x = of_x});
    for (const auto& [dtype, zero_point] : {std::pair{DType::u8, 130}, {DType::i8, 5}}) {
      const Tensor found =
          scaled_linear(x, w, {.x = of_x, .out = {number(0.3), integer(zero_point)}, .out_dtype = dtype});
      ASSERT_EQ(found.dtype(), dtype);
      const double lowest = dtype == DType::u8 ? 0 : -128;
      for (int64_t e = 0; e < y.numel(); ++e) {
        const double code = std::nearbyint(static_cast<double>(y.data<float>()[e] * (1.0F / 0.3F))) + zero_point;
        EXPECT_EQ(static_cast<double>(facets::read_int64(found, e)), std::clamp(code, lowest, lowest + 255)) << e;
      }
    }
    EXPECT_EQ(scaled_linear(x, w, {.x = of_x, .out = {number(0.3)}}).dtype(), DType::u8) << "that of x";
  }
}

TEST(ScaledLinear, ResultsBecomeCodesOfFp8) {
  for (const float scale : {0.3F, 0.001F, 1000.0F}) {
    const Tensor x = sample_tensor(1, {5, 33}), bias = sample_tensor(4, {18});
    bias.data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
    bias.data<float>()[10] = std::numeric_limits<float>::infinity();
    const ScaledWeight w{codes(2, {18, 33}, DType::f8e4m3fn), scales(3, 18), bias};
    const Tensor y = scaled_linear(x, w);
    const Tensor found = scaled_linear(x, w, {.out = {number(scale)}, .out_dtype = DType::f8e4m3fn});
    for (int64_t e = 0; e < y.numel(); ++e) {
      const float over_scale = y.data<float>()[e] * (1.0F / scale);
      const float within = std::isnan(over_scale) ? over_scale : std::clamp(over_scale, -448.0F, 448.0F);
      EXPECT_EQ(found.data<float8_e4m3fn>()[e].bits, to_float8_e4m3fn(within).bits) << over_scale;
    }
  }
}

// Rows of W that are part of longer ones stay where they are.
TEST(ScaledLinear, RowsOfWeightsMayHaveGaps) {
  for (const DType dtype : {DType::i8, DType::f8e4m3fn})
    for (const int64_t m : {1, 3, 5, 71})
      for (const int64_t k : {36, 130}) {
        const Tensor x = sample_tensor(1, {m, k}), wide = codes(2, {41, k + 9}, dtype), of_w = scales(3, 41);
        const Tensor rows = narrow(wide, 1, 3, k);
        expect_same_bits(scaled_linear(x, {rows, of_w}), scaled_linear(x, {contiguous(rows), of_w}),
                         fmt::format("{} {} {}", name_of(dtype), m, k));
      }
}

// Decoded codes multiplied by matmul, whose tree is that of N3.
TEST(ScaledLinear, HasTheSumsOfF32ForCodesOfFp8) {
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 13})
    for (const int64_t n : {1, 8, 16, 37, 70})
      for (const int64_t k : {0, 1, 7, 128, 129, 300, 1000}) {
        const Tensor x = codes(1, {m, k}, DType::f8e4m3fn);
        const ScaledWeight w{codes(2, {n, k}, DType::f8e4m3fn), scales(3, n)};
        const Tensor total = matmul(cast(x, DType::f32), transpose(cast(w.codes, DType::f32), 0, 1));
        const Tensor expected = mul(total, mul(number(0.07), w.scale));
        expect_same_bits(scaled_linear(x, w, {.x = {number(0.07)}}), expected, fmt::format("{} {} {}", m, n, k));
      }
}

// A code that is no number makes its row of W so, and no other, wherever it stands.
TEST(ScaledLinear, CodesOfFp8ThatAreNoNumbersStayInTheirRow) {
  for (const int64_t m : {1, 3, 4, 9})
    for (const auto& [row, column] : {std::pair<int64_t, int64_t>{0, 0}, {33, 63}, {34, 64}, {69, 199}, {5, 130}}) {
      const Tensor x = codes(1, {m, 200}, DType::f8e4m3fn), w = codes(2, {70, 200}, DType::f8e4m3fn);
      const Tensor before = scaled_linear(x, {w, number(1)}, {.x = {number(1)}});
      w.data<float8_e4m3fn>()[row * 200 + column] = {static_cast<uint8_t>(row % 2 ? 0xff : 0x7f)};
      const Tensor y = scaled_linear(x, {w, number(1)}, {.x = {number(1)}});
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < 70; ++j) {
          if (j == row) EXPECT_TRUE(std::isnan(y.data<float>()[i * 70 + j]));
          else EXPECT_EQ(y.data<float>()[i * 70 + j], before.data<float>()[i * 70 + j]) << i << " " << j;
        }
    }
}

TEST(ScaledLinear, DecodesAndRoundsEveryCodeOfFp8) {
  const Tensor all = Tensor::empty({1, 256}, DType::f8e4m3fn), x = Tensor::empty({256, 1}, DType::f8e4m3fn);
  for (int i = 0; i < 256; ++i) all.data<float8_e4m3fn>()[i] = x.data<float8_e4m3fn>()[i] = {static_cast<uint8_t>(i)};
  const Tensor one = cast(full({1, 1}, 1.0), DType::f8e4m3fn);
  const Tensor as_x = scaled_linear(x, {one, number(1)}, {.x = {number(1)}});
  const Tensor as_w = scaled_linear(one, {reshape(all, {256, 1}), number(1)}, {.x = {number(1)}});
  const Tensor back = scaled_linear(x, {one, number(1)}, {.x = {number(1)}, .out = {number(1)}});
  for (int i = 0; i < 256; ++i) {
    const float value = to_float(float8_e4m3fn{static_cast<uint8_t>(i)});
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(as_x.data<float>()[i]) && std::isnan(as_w.data<float>()[i]));
      EXPECT_EQ(back.data<float8_e4m3fn>()[i].bits & 0x7f, 0x7f);
      continue;
    }
    EXPECT_EQ(as_x.data<float>()[i], value) << i;
    EXPECT_EQ(as_w.data<float>()[i], value) << i;
    EXPECT_EQ(to_float(back.data<float8_e4m3fn>()[i]), value) << i;
  }
  const Tensor beyond = scaled_linear(full({1, 1}, 1000.0), {one, number(1)}, {.x = {number(1)}});
  EXPECT_EQ(beyond.item(), 448) << "the largest code";
}

TEST(ScaledLinear, DoesNotDependOnThreadsRowsOfXOrRowsOfW) {
  RankContext& context = RankContext::current();
  for (const DType dtype : {DType::i8, DType::f8e4m3fn}) {
    const Tensor x = sample_tensor(1, {29, 520});
    const ScaledWeight w{codes(2, {203, 520}, dtype), scales(3, 203), sample_tensor(4, {203})};
    context.set_threads(1);
    const Tensor all = scaled_linear(x, w);
    for (const int threads : {2, 4}) {
      context.set_threads(threads);
      expect_same_bits(scaled_linear(x, w), all);
    }
    context.set_threads(0);
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 1}, {3, 4}, {5, 6}, {11, 18}, {4, 0}})
      expect_same_bits(scaled_linear(narrow(x, 0, first, count), w), contiguous(narrow(all, 0, first, count)));
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 101}, {101, 102}, {5, 1}, {203, 0}}) {
      const ScaledWeight part{narrow(w.codes, 0, first, count), narrow(w.scale, 0, first, count),
                              narrow(w.bias, 0, first, count)};
      expect_same_bits(scaled_linear(x, part), contiguous(narrow(all, 1, first, count)));
    }
  }
  const ScaledWeight w{codes(2, {17, 40}), number(0.1)};
  const Tensor many = sample_tensor(5, {1100, 40});
  expect_same_bits(scaled_linear(narrow(many, 0, 1020, 10), w), contiguous(narrow(scaled_linear(many, w), 0, 1020, 10)),
                   "beyond the rows of one pass");
}

TEST(ScaledLinear, TakesNarrowFloatsStridesAndLeadingDims) {
  const ScaledWeight w{codes(2, {11, 52}), scales(3, 11)};
  const Tensor wide = sample_tensor(1, {6, 52}), many = sample_tensor(5, {70, 52});
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor of_many = cast(many, dtype);
    expect_same_bits(scaled_linear(of_many, w), cast(scaled_linear(of_many, w, {.out_dtype = DType::f32}), dtype));
    const Tensor x = cast(wide, dtype), exact = scaled_linear(cast(x, DType::f32), w);
    expect_same_bits(scaled_linear(x, w, {.out_dtype = DType::f32}), exact);
    expect_same_bits(scaled_linear(x, w), cast(exact, dtype));
  }
  const Tensor y = scaled_linear(wide, w);
  const ScaledWeight strided{facets::strided_copy(w.codes), facets::strided_copy(w.scale)};
  expect_same_bits(scaled_linear(facets::strided_copy(wide), strided), y);
  const Tensor cube = scaled_linear(reshape(wide, {2, 3, 52}), w);
  EXPECT_EQ(cube.extents(), (Extents{2, 3, 11}));
  expect_same_bits(reshape(cube, {6, 11}), y);
  expect_same_bits(scaled_linear(select(wide, 0, 4), w), contiguous(select(y, 0, 4)));
}

TEST(ScaledLinear, TakesScalesInAnyOrderOfMemory) {
  const Tensor x = codes(1, {5, 20}), w = codes(2, {24, 20}), scale = scales(3, 24), turned = Tensor::empty({24});
  for (int64_t j = 0; j < 24; ++j) turned.data<float>()[23 - j] = scale.data<float>()[j];
  const Tensor y = scaled_linear(x, {w, scale}, {.x = {number(0.1)}});
  expect_same_bits(scaled_linear(x, {w, as_strided(turned, {24}, {-1}, 23)}, {.x = {number(0.1)}}), y);
  expect_same_bits(scaled_linear(x, {w, expand(number(0.03), {24})}, {.x = {number(0.1)}}),
                   scaled_linear(x, {w, number(0.03)}, {.x = {number(0.1)}}));
}

TEST(ScaledLinear, RowsThatHaveNoScale) {
  const ScaledWeight w{codes(2, {3, 20}), number(0.5), sample_tensor(4, {3})};
  const Tensor x = sample_tensor(1, {5, 20});
  std::fill_n(x.data<float>(), 20, 0.0F);
  std::fill_n(x.data<float>() + 20, 20, 1e-40F);
  x.data<float>()[47] = std::numeric_limits<float>::infinity();
  x.data<float>()[67] = std::numeric_limits<float>::quiet_NaN();
  const Tensor y = scaled_linear(x, w);
  for (int64_t j = 0; j < 3; ++j) {
    EXPECT_EQ(y.data<float>()[j], w.bias.data<float>()[j]);
    EXPECT_EQ(y.data<float>()[3 + j], w.bias.data<float>()[j]);
    EXPECT_TRUE(std::isnan(y.data<float>()[6 + j]) && std::isnan(y.data<float>()[9 + j]));
    EXPECT_TRUE(std::isfinite(y.data<float>()[12 + j]));
  }
}

// Two calls that differ in one operand of one element.
TEST(ScaledLinear, CallsThatDifferInOneNumberAreTwoCalls) {
  const Tensor x = codes(1, {2, 16}, DType::u8);
  const ScaledWeight w{codes(2, {4, 16}), number(0.5)};
  for (int round = 0; round < 2; ++round)
    for (const int zero_point : {7, 8}) {
      expect_same_bits(scaled_linear(x, w, {.x = {number(0.25), integer(zero_point)}}),
                       product_of_codes(x, zero_point, 0.25F, w));
      expect_same_bits(scaled_linear(x, w, {.x = {number(0.125), integer(zero_point)}}),
                       product_of_codes(x, zero_point, 0.125F, w));
    }
}

// Memory that calls keep for the next one belongs to their thread.
TEST(ScaledLinear, CallsOfManySizesOnTwoThreadsAtOnce) {
  struct Case {
    Tensor x, y;
    ScaledWeight w;
  };
  std::vector<Case> cases;
  for (const auto& [m, k] : {std::pair<int64_t, int64_t>{70, 128}, {3, 40}, {1, 1}, {130, 36}, {5, 300}, {70, 33}})
    for (const DType dtype : {DType::i8, DType::f8e4m3fn}) {
      const auto seed = static_cast<uint64_t>(m + k);
      Case c{sample_tensor(seed, {m, k}), {}, {codes(seed + 1, {19, k}, dtype), scales(seed + 2, 19)}};
      c.y = scaled_linear(c.x, c.w);
      cases.push_back(std::move(c));
    }
  std::barrier start(2);
  std::atomic<int> wrong{0};
  const auto call_all = [&](size_t step) {
    start.arrive_and_wait();
    for (size_t i = 0; i < 20 * cases.size(); ++i) {
      const Case& c = cases[i * step % cases.size()];
      const Tensor y = scaled_linear(c.x, c.w);
      if (std::memcmp(y.raw_data(), c.y.raw_data(), static_cast<size_t>(y.nbytes())) != 0) ++wrong;
    }
  };
  std::thread one(call_all, 1), other(call_all, 5);
  one.join(), other.join();
  EXPECT_EQ(wrong, 0);
}

TEST(ScaledLinear, SaysWhatIsWrong) {
  const Tensor w = zeros({3, 8}, DType::i8), x = zeros({2, 8});
  const auto error = [&](const Tensor& of_x, const ScaledWeight& weight, const ScaledLinearOptions& options = {}) {
    return message_of([&] { scaled_linear(of_x, weight, options); });
  };
  EXPECT_EQ(error(x, {zeros({3, 8}), number(1)}),
            "scaled_linear: the weight is [3, 8] f32 cpu; expected i8 or f8e4m3fn [out, in]");
  EXPECT_EQ(error(zeros({2, 9}), {w, number(1)}),
            "scaled_linear: x is [2, 9] f32 cpu, the weight [3, 8]; expected x [..., 8]");
  EXPECT_EQ(error(zeros({2, 8}, DType::i8), {w, number(1)}), "scaled_linear: x is codes of i8 without a scale");
  EXPECT_EQ(error(zeros({2, 8}, DType::i32), {w, number(1)}),
            "scaled_linear: x is [2, 8] i32 cpu, rounded to i8, and the weight i8; expected f32, bf16, f16 or codes of "
            "i8 or u8");
  EXPECT_EQ(error(x, {w, zeros({2})}),
            "scaled_linear: the scale of the weight is [2] f32 cpu; expected f32, one number or 3");
  EXPECT_EQ(error(x, {w, number(1), zeros({2})}), "scaled_linear: the bias is [2] f32 cpu; expected f32 [3]");
  EXPECT_EQ(error(x, {w, number(1)}, {.x_codes = DType::u8}),
            "scaled_linear: rows without a scale are rounded to i8 or f8e4m3fn around 0; give a scale with the zero "
            "point, or codes of u8");
  EXPECT_EQ(error(x, {w, number(1)}, {.x = {number(0)}}),
            "scaled_linear: the scale of x is 0 at 0; expected a positive number whose inverse is one, too");
  EXPECT_NE(error(x, {w, number(1)}, {.x = {number(1e-40)}}).find("whose inverse is one, too"), std::string::npos);
  EXPECT_EQ(error(x, {w, number(1)}, {.out = {Tensor(), integer(3)}}),
            "scaled_linear: the result has a zero point and no scale");
  EXPECT_EQ(error(x, {w, number(1)}, {.x = {number(1), integer(-200)}}),
            "scaled_linear: the zero point of x is -200; codes of i8 are from -128 to 127");
  EXPECT_EQ(error(x, {w, number(1)}, {.out_dtype = DType::i8}),
            "scaled_linear: a result of i8 without a scale; expected f32, bf16 or f16");
  EXPECT_EQ(error(x, {w, number(1)}, {.out = {number(1)}, .out_dtype = DType::f32}),
            "scaled_linear: a result of f32 with a scale; expected i8, u8 or f8e4m3fn");
}

}  // namespace
}  // namespace tutti
