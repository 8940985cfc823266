#include "tutti/ops/quantized_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using facets::sample_tensor;

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor number(double value) { return full({1}, value); }
Tensor integer(int value) { return full({1}, value, DType::i32); }
Tensor codes(uint64_t seed, const Extents& sizes, DType dtype) {
  if (dtype == DType::f8e4m3fn) return sample_tensor(seed, sizes, dtype, -4, 4);
  return sample_tensor(seed, sizes, dtype, dtype == DType::u8 ? 0 : -128, dtype == DType::u8 ? 256 : 128);
}
float one(const Tensor& t) { return t.defined() ? t.data<float>()[0] : 0; }
int zero_of(const AffineScale& s) { return s.zero_point.defined() ? s.zero_point.data<int32_t>()[0] : 0; }

struct Problem {
  CodedTensor q, k, v;
  int64_t B, Sq, Sk, Hq, Hkv, D;
};
Problem problem(DType dtype, int64_t B, int64_t Sq, int64_t Sk, int64_t Hq, int64_t Hkv, int64_t D) {
  const bool is_u8 = dtype == DType::u8, is_fp8 = dtype == DType::f8e4m3fn;
  const auto zero_point = [&](int value) { return is_fp8 ? Tensor() : integer(is_u8 ? value : value - 128); };
  const double unit = is_fp8 ? 0.4 : 0.02;
  return {{codes(1, {B, Sq, Hq, D}, dtype), {number(unit), zero_point(120)}},
          {codes(2, {B, Sk, Hkv, D}, dtype), {number(1.1 * unit), zero_point(131)}},
          {codes(3, {B, Sk, Hkv, D}, dtype), {number(0.7 * unit), zero_point(125)}},
          B,
          Sq,
          Sk,
          Hq,
          Hkv,
          D};
}

float at(const CodedTensor& t, int64_t b, int64_t s, int64_t h, int64_t d) {
  const Extents& e = t.codes.extents();
  return static_cast<float>(facets::read_double(t.codes, ((b * e[1] + s) * e[2] + h) * e[3] + d)) -
         static_cast<float>(zero_of(t.scale));
}
// The sum over blocks of 64 keys in a tree anchored at key 0.
template <class Block>
float in_aligned_tree(int64_t first, int64_t blocks, int64_t all, const Block& block) {
  if (first >= all) return 0;
  if (blocks == 1) return block(first);
  const float left = in_aligned_tree(first, blocks / 2, all, block);
  return first + blocks / 2 >= all ? left : left + in_aligned_tree(first + blocks / 2, blocks / 2, all, block);
}

// One query by the formulas of the header, integers only, with the exponentials of the op exp.
std::vector<float> query_of(const Problem& p, int64_t b, int64_t s, int64_t h, std::vector<bool> sees,
                            const std::vector<float>& bias, float p_scale, int p_zero) {
  const int64_t kv = h / (p.Hq / p.Hkv);
  const Tensor scores = Tensor::empty({p.Sk});
  float largest = -kInf;
  for (int64_t t = 0; t < p.Sk; ++t) {
    double total = 0;
    for (int64_t d = 0; d < p.D; ++d)
      total += static_cast<double>(at(p.q, b, s, h, d)) * static_cast<double>(at(p.k, b, t, kv, d));
    const float factor =
        one(p.q.scale.scale) * one(p.k.scale.scale) * static_cast<float>(1 / std::sqrt(static_cast<double>(p.D)));
    const auto i = static_cast<size_t>(t);
    scores.data<float>()[t] = sees[i] ? static_cast<float>(total) * factor + bias[i] : -kInf;
    sees[i] = sees[i] && scores.data<float>()[t] != -kInf;
    largest = std::max(largest, scores.data<float>()[t]);
  }
  std::vector<float> y(static_cast<size_t>(p.D), 0);
  if (largest == -kInf) return y;
  const Tensor e = exp(sub(scores, full({1}, static_cast<double>(largest))));
  const auto e_of = [&](int64_t t) { return t < p.Sk && sees[static_cast<size_t>(t)] ? e.data<float>()[t] : 0.0F; };
  const auto sum_of_block = [&](int64_t block) {
    float lanes[8] = {};
    for (int64_t t = 0; t < 64; ++t) lanes[t % 8] += e_of(64 * block + t);
    for (int width = 4; width > 0; width /= 2)
      for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    return lanes[0];
  };
  const float sum = in_aligned_tree(0, int64_t{1} << 20, (p.Sk + 63) / 64, sum_of_block),
              inverse = 1.0F / (sum * p_scale);
  for (int64_t d = 0; d < p.D; ++d) {
    double total = 0;
    for (int64_t t = 0; t < p.Sk; ++t) {
      if (!sees[static_cast<size_t>(t)]) continue;
      const double code = std::clamp(std::nearbyint(static_cast<double>(e_of(t) * inverse)) + p_zero, 0.0, 255.0);
      total += (code - p_zero) * static_cast<double>(at(p.v, b, t, kv, d));
    }
    y[static_cast<size_t>(d)] = static_cast<float>(total) * (p_scale * one(p.v.scale.scale));
  }
  return y;
}

struct Masks {
  bool causal = false;
  std::vector<int32_t> lengths = {};
  Tensor mask = {};
};
void expect_defined(const Problem& p, const Masks& masks, const AffineScale& probabilities = {}) {
  QuantizedSdpaOptions options{.causal = masks.causal, .mask = masks.mask, .probabilities = probabilities};
  if (!masks.lengths.empty()) options.lengths = Tensor::of(masks.lengths, {p.B});
  const Tensor y = quantized_sdpa(p.q, p.k, p.v, options);
  const float p_scale = probabilities.defined() ? one(probabilities.scale) : 1.0F / 255.0F;
  for (int64_t b = 0; b < p.B; ++b)
    for (int64_t s = 0; s < p.Sq; ++s)
      for (int64_t h = 0; h < p.Hq; ++h) {
        std::vector<bool> sees;
        std::vector<float> bias;
        const int64_t length = masks.lengths.empty() ? p.Sk : masks.lengths[static_cast<size_t>(b)];
        for (int64_t t = 0; t < p.Sk; ++t) {
          sees.push_back(t < length && (!masks.causal || t <= s + length - p.Sq));
          bias.push_back(0);
          if (!masks.mask.defined()) continue;
          const Extents& e = masks.mask.extents();
          const int64_t place =
              (((e[0] == 1 ? 0 : b) * e[1] + (e[1] == 1 ? 0 : h)) * e[2] + (e[2] == 1 ? 0 : s)) * e[3] + t;
          if (masks.mask.dtype() == DType::boolean) sees.back() = sees.back() && masks.mask.data<bool>()[place];
          else bias.back() = masks.mask.data<float>()[place];
        }
        const std::vector<float> expected = query_of(p, b, s, h, sees, bias, p_scale, zero_of(probabilities));
        for (int64_t d = 0; d < p.D; ++d)
          ASSERT_EQ(y.data<float>()[((b * p.Sq + s) * p.Hq + h) * p.D + d], expected[static_cast<size_t>(d)])
              << b << " " << s << " " << h << " " << d << " of " << p.Sq << " " << p.Sk << " " << p.D;
      }
}

TEST(QuantizedSdpa, HasTheBitsOfItsDefinition) {
  for (const DType dtype : {DType::i8, DType::u8})
    for (const auto& [Sq, Sk] :
         {std::pair<int64_t, int64_t>{1, 1}, {1, 200}, {5, 5}, {13, 64}, {12, 65}, {30, 129}, {3, 0}})
      for (const int64_t D : {1, 7, 16, 17, 64}) {
        const Problem p = problem(dtype, 2, Sq, Sk, 4, D % 2 == 0 ? 2 : 4, D);
        expect_defined(p, {});
        expect_defined(p, {.causal = true});
        expect_defined(p, {.causal = true, .lengths = {static_cast<int32_t>(Sk), static_cast<int32_t>(Sk / 2)}});
        expect_defined(p, {.mask = sample_tensor(5, {2, 1, Sq, Sk}, DType::boolean, 0, 2)});
        expect_defined(p, {.mask = sample_tensor(6, {1, 4, 1, Sk})});
      }
}

// The largest products that there are, over heads and keys of several lines of memory.
TEST(QuantizedSdpa, CodesAtTheirBoundsDoNotWrap) {
  for (const DType dtype : {DType::i8, DType::u8})
    for (const int of_q : {0, 255})
      for (const int of_kv : {0, 255}) {
        Problem p = problem(dtype, 1, 13, 1001, 1, 1, 130);
        const int lowest = dtype == DType::i8 ? -128 : 0;
        for (CodedTensor* t : {&p.q, &p.k, &p.v}) {
          const int value = t == &p.q ? of_q : of_kv;
          std::fill_n(static_cast<uint8_t*>(t->codes.raw_data()), t->codes.numel(),
                      static_cast<uint8_t>(lowest + value));
          t->scale.zero_point = integer(lowest + 255 - value);
        }
        expect_defined(p, {});
        expect_defined(p, {.causal = true});
      }
  expect_defined(problem(DType::u8, 1, 14, 130, 2, 1, 200), {.causal = true});
}

TEST(QuantizedSdpa, ProbabilitiesHaveTheScaleThatTheyAreGiven) {
  const Problem p = problem(DType::u8, 1, 9, 70, 2, 1, 24);
  for (const int zero_point : {0, 3, 255})
    for (const double scale : {1.0 / 255, 0.002, 0.1})
      expect_defined(p, {.causal = true}, {number(scale), integer(zero_point)});
}

TEST(QuantizedSdpa, QueriesThatSeeNothingGiveZero) {
  for (const DType dtype : {DType::i8, DType::u8, DType::f8e4m3fn}) {
    const Problem p = problem(dtype, 2, 3, 40, 2, 1, 8);
    const Tensor hidden = full({1, 1, 3, 40}, 0, DType::boolean);
    const Tensor far = full({1, 1, 1, 40}, -static_cast<double>(kInf));
    for (const QuantizedSdpaOptions& options :
         {QuantizedSdpaOptions{.mask = hidden}, {.mask = far}, {.lengths = zeros({2}, DType::i32)}})
      expect_same_bits(quantized_sdpa(p.q, p.k, p.v, options), zeros({2, 3, 2, 8}));
  }
  const Problem p = problem(DType::u8, 1, 2, 5, 1, 1, 4);
  const Tensor y =
      quantized_sdpa(p.q, p.k, p.v, {.mask = full({1, 1, 1, 5}, 0, DType::boolean), .out = {number(0.1), integer(77)}});
  for (int64_t e = 0; e < 8; ++e) EXPECT_EQ(y.data<uint8_t>()[e], 77) << "the code of 0";
}

// The bits of a query depend on what it sees alone.
TEST(QuantizedSdpa, DoesNotDependOnPaddingBatchOrThreads) {
  RankContext& context = RankContext::current();
  for (const DType dtype : {DType::i8, DType::u8, DType::f8e4m3fn}) {
    const Problem p = problem(dtype, 3, 300, 300, 4, 2, 40);
    context.set_threads(1);
    const Tensor y = quantized_sdpa(p.q, p.k, p.v, {.causal = true});
    for (const int threads : {2, 4}) {
      context.set_threads(threads);
      expect_same_bits(quantized_sdpa(p.q, p.k, p.v, {.causal = true}), y);
    }
    context.set_threads(0);
    for (const int64_t keys : {1, 63, 64, 65, 130, 259}) {
      const auto part = [&](const CodedTensor& t, int64_t first, int64_t count) {
        return CodedTensor{narrow(narrow(t.codes, 0, 1, 1), 1, first, count), t.scale};
      };
      const Tensor last = quantized_sdpa(part(p.q, keys - 1, 1), part(p.k, 0, keys), part(p.v, 0, keys));
      expect_same_bits(last, contiguous(narrow(narrow(y, 0, 1, 1), 1, keys - 1, 1)), fmt::format("{} keys", keys));
      const Tensor padded = quantized_sdpa(part(p.q, keys - 1, 1), part(p.k, 0, 300), part(p.v, 0, 300),
                                           {.lengths = full({1}, static_cast<double>(keys), DType::i32)});
      expect_same_bits(padded, last);
    }
  }
}

TEST(QuantizedSdpa, IsAttentionOfTheDecodedValuesUpToRounding) {
  for (const DType dtype : {DType::i8, DType::u8, DType::f8e4m3fn}) {
    const Problem p = problem(dtype, 2, 33, 150, 4, 2, 32);
    const auto decoded = [](const CodedTensor& t) {
      return mul(sub(cast(t.codes, DType::f64), full({1}, zero_of(t.scale), DType::f64)),
                 full({1}, static_cast<double>(one(t.scale.scale)), DType::f64));
    };
    const Tensor exact = sdpa(decoded(p.q), decoded(p.k), decoded(p.v), {.causal = true});
    const Tensor y = quantized_sdpa(p.q, p.k, p.v, {.causal = true});
    double square = 0, of_error = 0;
    for (int64_t e = 0; e < y.numel(); ++e) {
      const double right = exact.data<double>()[e], error = static_cast<double>(y.data<float>()[e]) - right;
      square += right * right, of_error += error * error;
    }
    EXPECT_LT(std::sqrt(of_error / square), dtype == DType::f8e4m3fn ? 0.03 : 0.02) << name_of(dtype);
  }
}

// NaN among the codes of q or k makes its queries NaN, and leaves the others alone.
TEST(QuantizedSdpa, CodesThatAreNoNumbers) {
  const Problem p = problem(DType::f8e4m3fn, 1, 5, 5, 1, 1, 8);
  const Tensor whole = quantized_sdpa(p.q, p.k, p.v, {.causal = true});
  const auto with_nan = [](const CodedTensor& t, int64_t at) {
    const Tensor codes = clone(t.codes);
    codes.data<float8_e4m3fn>()[at] = {0x7f};
    return CodedTensor{codes, t.scale};
  };
  const Tensor of_q = quantized_sdpa(with_nan(p.q, 2 * 8 + 3), p.k, p.v, {.causal = true});
  const Tensor of_k = quantized_sdpa(p.q, with_nan(p.k, 3 * 8), p.v, {.causal = true});
  for (int64_t s = 0; s < 5; ++s) {
    for (int64_t d = 0; d < 8; ++d) {
      const int64_t e = s * 8 + d;
      EXPECT_TRUE(s == 2 ? std::isnan(of_q.data<float>()[e]) : of_q.data<float>()[e] == whole.data<float>()[e]) << e;
      EXPECT_TRUE(s >= 3 ? std::isnan(of_k.data<float>()[e]) : of_k.data<float>()[e] == whole.data<float>()[e]) << e;
    }
  }
  const Tensor hides = full({1, 1, 1, 5}, 0.0);
  hides.data<float>()[3] = -kInf;
  const Tensor hidden = quantized_sdpa(p.q, with_nan(p.k, 3 * 8), p.v, {.mask = hides});
  expect_same_bits(hidden, quantized_sdpa(p.q, p.k, p.v, {.mask = hides}));
}

TEST(QuantizedSdpa, TakesViewsOfOneTensor) {
  const Problem p = problem(DType::u8, 2, 20, 20, 4, 4, 16);
  const Tensor both = cat({p.q.codes, p.k.codes, p.v.codes}, 2);
  const auto view = [&](int64_t i, const AffineScale& scale) { return CodedTensor{narrow(both, 2, 4 * i, 4), scale}; };
  const Tensor y = quantized_sdpa(p.q, p.k, p.v, {.causal = true});
  expect_same_bits(quantized_sdpa(view(0, p.q.scale), view(1, p.k.scale), view(2, p.v.scale), {.causal = true}), y);
  const CodedTensor turned{permute(contiguous(permute(p.k.codes, {0, 3, 1, 2})), {0, 2, 3, 1}), p.k.scale};
  expect_same_bits(quantized_sdpa(p.q, turned, p.v, {.causal = true}), y);
}

TEST(QuantizedSdpa, TakesMoreKeysThanASumOf32BitsHolds) {
  const int64_t Sk = 70001;
  const CodedTensor q{full({1, 1, 1, 2}, 0, DType::u8), {number(0.1)}};
  const CodedTensor k{full({1, Sk, 1, 2}, 0, DType::u8), {number(0.1)}},
      v{full({1, Sk, 1, 2}, 255, DType::u8), {number(1)}};
  const double p_scale = 1.0 / 255 / static_cast<double>(Sk);
  const Tensor y = quantized_sdpa(q, k, v, {.probabilities = {number(p_scale)}});
  EXPECT_NEAR(y.data<float>()[0], 255, 0.5);
}

TEST(QuantizedSdpa, SaysWhatIsWrong) {
  const Problem p = problem(DType::u8, 1, 2, 3, 4, 2, 4);
  const auto error = [&](const CodedTensor& q, const CodedTensor& k, const CodedTensor& v,
                         const QuantizedSdpaOptions& options = {}) {
    return message_of([&] { quantized_sdpa(q, k, v, options); });
  };
  EXPECT_EQ(error(p.q, p.k, {zeros({1, 3, 2, 4}, DType::i8), p.v.scale}),
            "quantized_sdpa: q, k and v are u8, u8 and i8; expected one of i8, u8 and f8e4m3fn");
  EXPECT_EQ(error({zeros({1, 2, 3, 4}, DType::u8), p.q.scale}, p.k, p.v),
            "quantized_sdpa: 3 query heads cannot share 2 key heads evenly");
  EXPECT_EQ(error({p.q.codes, {}}, p.k, p.v),
            "quantized_sdpa: the scale of q is <undefined>; expected f32, one number");
  EXPECT_EQ(error({p.q.codes, {zeros({2})}}, p.k, p.v),
            "quantized_sdpa: the scale of q is [2] f32 cpu; expected f32, one number");
  EXPECT_EQ(error(p.q, {p.k.codes, {number(-1)}}, p.v),
            "quantized_sdpa: the scale of k is -1 at 0; expected a positive number whose inverse is one, too");
  EXPECT_EQ(error(p.q, p.k, p.v, {.lengths = full({1}, 4, DType::i32)}),
            "quantized_sdpa: sequence 0 has 4 valid keys; there are 3");
  EXPECT_EQ(error(p.q, p.k, p.v, {.mask = zeros({1, 1, 2, 4})}),
            "quantized_sdpa: mask is [1, 1, 2, 4] f32 cpu; expected booleans or f32 [1 or 1, 4 or 1, 2 or 1, 3]");
  EXPECT_EQ(error(p.q, p.k, p.v, {.out_dtype = DType::u8}),
            "quantized_sdpa: a result of u8 without a scale; expected f32, bf16 or f16");
}

}  // namespace
}  // namespace tutti
