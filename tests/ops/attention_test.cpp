#include "tutti/ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/ops/support/attention_definition.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/ops/attention/steps.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/sum_to.h"
#include "tutti/ops/where.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.extents(), b.extents());
  EXPECT_EQ(std::memcmp(to_contiguous(a).raw_data(), to_contiguous(b).raw_data(), static_cast<size_t>(a.nbytes())), 0);
}

struct Row {
  Tensor q = facets::sample_tensor(1, {1, 9, 4, 16}), k = facets::sample_tensor(2, {1, 256, 2, 16}),
         v = facets::sample_tensor(3, {1, 256, 2, 16});
};

Tensor last_keys(std::vector<int32_t> keys, int32_t chunk_begin = 0) {
  for (int32_t& key : keys) key -= chunk_begin;
  return Tensor::of(keys, {1, static_cast<int64_t>(keys.size())});
}

const std::vector<int32_t> kPositions{3, 64, 63, 200, 255, 0, 130, 127, 128};

TEST(Attention, ChunksOfTheKeysCombineToTheBitsOfTheWholeRow) {
  const Row row;
  std::vector<SdpaPartial> nodes;
  for (const int32_t begin : {0, 64, 128, 192})
    nodes.push_back(sdpa_partial(row.q, narrow(row.k, 1, begin, 64), narrow(row.v, 1, begin, 64),
                                 {.last_key = last_keys(kPositions, begin)}));
  const SdpaResult parts = sdpa_of(combine(combine(nodes[0], nodes[1]), combine(nodes[2], nodes[3])), DType::f32);
  const SdpaResult whole = sdpa_with_logsumexp(row.q, row.k, row.v, {.last_key = last_keys(kPositions)});
  expect_same_bits(parts.output, whole.output);
  expect_same_bits(parts.logsumexp, whole.logsumexp);
}

TEST(Attention, QueriesInAnyOrderGiveTheSameRows) {
  const Row row;
  const Tensor causal = sdpa(narrow(row.q, 1, 0, 4), narrow(row.k, 1, 0, 4), narrow(row.v, 1, 0, 4), {.causal = true});
  for (const int32_t position : {3, 0, 2, 1}) {
    const Tensor alone = sdpa(narrow(row.q, 1, position, 1), narrow(row.k, 1, 0, 4), narrow(row.v, 1, 0, 4),
                              {.last_key = last_keys({position})});
    expect_same_bits(alone, narrow(causal, 1, position, 1));
  }
}

TEST(Attention, AQueryThatSeesNoKeyOfAChunkIsItsIdentity) {
  const Row row;
  const SdpaPartial hidden = sdpa_partial(row.q, narrow(row.k, 1, 64, 64), narrow(row.v, 1, 64, 64),
                                          {.last_key = last_keys(std::vector<int32_t>(9, -1))});
  const SdpaPartial seen = sdpa_partial(row.q, narrow(row.k, 1, 0, 64), narrow(row.v, 1, 0, 64));
  expect_same_bits(combine(seen, hidden).output, seen.output);
  expect_same_bits(combine(seen, hidden).sum, seen.sum);
}

struct Operands {
  Tensor q, k, v, g;
  Operands(int64_t B, int64_t Sq, int64_t Sk, int64_t Hq, int64_t Hkv, int64_t D, DType dtype = DType::f32)
      : q(facets::sample_tensor(1, {B, Sq, Hq, D}, dtype)),
        k(facets::sample_tensor(2, {B, Sk, Hkv, D}, dtype)),
        v(facets::sample_tensor(3, {B, Sk, Hkv, D}, dtype)),
        g(facets::sample_tensor(4, {B, Sq, Hq, D}, dtype)) {}

  SdpaResult forward(const SdpaOptions& options) const { return sdpa_with_logsumexp(q, k, v, options); }
  SdpaGradients backward(const SdpaOptions& options) const {
    return sdpa_partial_backward(g, q, k, v, forward(options), options);
  }
};

void expect_same(const SdpaGradients& a, const SdpaGradients& b) {
  expect_same_bits(a.q, b.q);
  expect_same_bits(a.k, b.k);
  expect_same_bits(a.v, b.v);
}

// A mask of any size that may be shared; some keys are hidden.
Tensor sample_mask(const Extents& sizes) {
  const Tensor mask = facets::sample_tensor(5, sizes);
  for (int64_t i = 0; i < mask.numel(); i += 3) mask.data<float>()[i] = -INFINITY;
  return mask;
}

// Starts of documents in a row of 200.
SdpaOptions documents(int64_t batch, int64_t length) {
  std::vector<int32_t> first;
  for (int64_t i = 0; i < batch * length; ++i) first.push_back(i % length >= 150 ? 150 : i % length >= 70 ? 70 : 0);
  return {.causal = true, .first_key = Tensor::of(first, {batch, length})};
}

TEST(Attention, HasTheBitsOfItsDefinition) {
  for (const Operands& x :
       {Operands(2, 200, 200, 4, 2, 32), Operands(1, 37, 300, 6, 2, 33), Operands(1, 130, 130, 2, 1, 256, DType::bf16),
        Operands(1, 37, 70, 4, 2, 33, DType::bf16), Operands(1, 66, 66, 1, 1, 130, DType::bf16),
        Operands(2, 2, 70, 4, 2, 35, DType::bf16), Operands(1, 70, 70, 1, 1, 40, DType::f64),
        Operands(1, 66, 70, 2, 1, 512), Operands(1, 33, 70, 2, 1, 512, DType::bf16),
        Operands(1, 2, 70, 2, 1, 512, DType::bf16), Operands(1, 3, 5, 140, 1, 8)}) {
    const SdpaOptions options = x.q.extent(1) == 200 ? documents(2, 200) : SdpaOptions{.causal = true};
    const SdpaResult result = x.forward(options), expected = testing::attention(x.q, x.k, x.v, options);
    expect_same_bits(result.output, expected.output);
    expect_same_bits(result.logsumexp, expected.logsumexp);
    expect_same(x.backward(options), testing::attention_gradients(x.g, x.q, x.k, x.v, result, options));
  }
}

TEST(Attention, CapsScoresBeforeMasks) {
  for (const Operands& x : {Operands(1, 90, 130, 4, 2, 32), Operands(2, 37, 70, 2, 1, 33, DType::bf16),
                            Operands(2, 2, 70, 4, 2, 32), Operands(1, 40, 40, 1, 1, 20, DType::f64)}) {
    for (const double cap : {0.25, 50.0}) {
      SdpaOptions options{.causal = true, .scale = 0.5, .score_cap = cap, .window = 40};
      for (const bool masked : {false, true}) {
        if (masked) options.mask = sample_mask({1, 1, x.q.extent(1), x.k.extent(1)});
        const SdpaResult result = x.forward(options), expected = testing::attention(x.q, x.k, x.v, options);
        expect_same_bits(result.output, expected.output);
        expect_same_bits(result.logsumexp, expected.logsumexp);
        expect_same(x.backward(options), testing::attention_gradients(x.g, x.q, x.k, x.v, result, options));
      }
      options.mask = {};
      expect_same_bits(sdpa_of(sdpa_partial(x.q, x.k, x.v, options), x.q.dtype()).output, x.forward(options).output);
    }
  }
}

// d/ds cap tanh(s / cap), checked without the formula of the kernel: by differences of the forward in f64.
TEST(Attention, TheGradientOfCappedScoresIsTheirSlope) {
  const Operands x(1, 5, 6, 2, 1, 4, DType::f64);
  const SdpaOptions options{.causal = true, .scale = 3, .score_cap = 0.5};
  const auto loss = [&] {
    const Tensor o = to_contiguous(x.forward(options).output);
    double sum = 0;
    for (int64_t i = 0; i < o.numel(); ++i) sum += o.data<double>()[i] * x.g.data<double>()[i];
    return sum;
  };
  const SdpaGradients gradients = x.backward(options);
  for (const auto& [t, gradient] : {std::pair(x.q, gradients.q), {x.k, gradients.k}, {x.v, gradients.v}}) {
    for (int64_t i = 0; i < t.numel(); ++i) {
      constexpr double kStep = 1e-5;
      double& value = t.data<double>()[i];
      const double before = value;
      value = before + kStep;
      const double above = loss();
      value = before - kStep;
      const double below = loss();
      value = before;
      EXPECT_NEAR(gradient.data<double>()[i], (above - below) / (2 * kStep), 1e-7) << i;
    }
  }
}

// Scores of bf16 are chains of pairs, products of a gradient in f32 are not.
TEST(Attention, HasTheBitsOfItsDefinitionForAWideGradient) {
  Operands x(1, 40, 40, 2, 1, 33, DType::bf16);
  x.g = facets::sample_tensor(4, {1, 40, 2, 33}, DType::f32);
  const SdpaResult result = x.forward({.causal = true});
  expect_same(x.backward({.causal = true}), testing::attention_gradients(x.g, x.q, x.k, x.v, result, {.causal = true}));
}

TEST(Attention, GivesTheSameBitsOnAnyNumberOfThreads) {
  const Operands x(1, 200, 200, 4, 2, 24);
  RankContext& context = RankContext::current();
  const int before = context.pool().threads();
  context.set_threads(1);
  const SdpaResult result = x.forward(documents(1, 200));
  const SdpaGradients gradients = x.backward(documents(1, 200));
  for (const int threads : {2, 3, 8}) {  // more threads than groups: the keys of a group are shared out
    context.set_threads(threads);
    expect_same_bits(x.forward(documents(1, 200)).output, result.output);
    expect_same(x.backward(documents(1, 200)), gradients);
  }
  context.set_threads(before);
}

TEST(Attention, ARowDependsNeitherOnTheBatchNorOnPaddingBehindIt) {
  const Operands x(3, 90, 150, 4, 2, 24);
  const auto cut = [&](const Tensor& t, int64_t b, int64_t length) { return narrow(narrow(t, 0, b, 1), 1, 0, length); };
  std::vector<int32_t> last;
  for (int32_t i = 0; i < 90; ++i) last.push_back(std::min(i, 79));
  const auto options = [&](int64_t batch, int64_t length) {
    std::vector<int32_t> all;
    for (int64_t b = 0; b < batch; ++b) all.insert(all.end(), last.begin(), last.begin() + length);
    return SdpaOptions{.last_key = Tensor::of(all, {batch, length})};
  };
  const Tensor whole = x.forward(options(3, 90)).output;
  for (const int64_t b : {0, 2})
    expect_same_bits(sdpa(cut(x.q, b, 33), cut(x.k, b, 80), cut(x.v, b, 80), options(1, 33)), cut(whole, b, 33));
}

TEST(Attention, QueriesMaySeeAnyRangesOfKeys) {
  const Operands x(1, 300, 200, 1, 1, 16);
  std::vector<int32_t> first, last;
  for (int32_t i = 0; i < 300; ++i) {
    first.push_back(i / 50 % 3 == 1 ? 190 : i * 37 % 150);
    last.push_back(i / 50 % 3 == 2 ? first.back() + i % 3 - 1 : i * 53 % 200);
  }
  const SdpaOptions options{.first_key = Tensor::of(first, {1, 300}), .last_key = Tensor::of(last, {1, 300})};
  const SdpaResult result = x.forward(options);
  expect_same_bits(result.output, testing::attention(x.q, x.k, x.v, options).output);
  expect_same(x.backward(options), testing::attention_gradients(x.g, x.q, x.k, x.v, result, options));
  const SdpaPartial node = sdpa_partial(x.q, x.k, x.v, options);
  expect_same_bits(sdpa_of(node, DType::f32).output, result.output);
  for (int64_t i = 0; i < 300; ++i) {
    if (node.sum.data<float>()[i] != 0) continue;
    for (int64_t d = 0; d < 16; ++d) EXPECT_EQ(node.output.data<float>()[i * 16 + d], 0.0f) << i;
  }
}

TEST(Attention, WorksWithTreesThatTestsCut) {
  const Operands x(1, 21, 21, 4, 2, 12);
  const KeyBlockScope blocks(2);
  const TokenGrainScope grain(4);
  const codegen::ContractionLeafForTests leaf(3);
  const SdpaOptions options{.causal = true};
  const SdpaResult result = x.forward(options);
  expect_same_bits(result.output, testing::attention(x.q, x.k, x.v, options).output);
  expect_same(x.backward(options), testing::attention_gradients(x.g, x.q, x.k, x.v, result, options));
}

TEST(Attention, AMaskIsAddedToTheScores) {
  const Operands x(2, 70, 90, 4, 2, 16);
  for (const Extents& sizes :
       {Extents{2, 4, 70, 90}, Extents{1, 1, 70, 90}, Extents{2, 1, 1, 90}, Extents{1, 4, 1, 90}}) {
    const SdpaOptions options{.causal = true, .mask = sample_mask(sizes)};
    const SdpaResult result = x.forward(options), expected = testing::attention(x.q, x.k, x.v, options);
    expect_same_bits(result.output, expected.output);
    expect_same_bits(result.logsumexp, expected.logsumexp);
    expect_same(x.backward(options), testing::attention_gradients(x.g, x.q, x.k, x.v, result, options));
  }
}

TEST(Attention, ABooleanMaskHidesAsInfinityDoes) {
  const Operands x(1, 20, 70, 2, 1, 8, DType::bf16);
  const Tensor mask = sample_mask({1, 1, 20, 70}), seen = Tensor::empty({1, 1, 20, 70}, DType::boolean);
  for (int64_t i = 0; i < mask.numel(); ++i) {
    seen.data<bool>()[i] = i % 3 != 0 && i >= 70;  // query 0 sees nothing
    mask.data<float>()[i] = seen.data<bool>()[i] ? 0.0f : -INFINITY;
  }
  const SdpaOptions by_truth{.mask = seen}, by_number{.mask = mask};
  expect_same_bits(x.forward(by_truth).output, x.forward(by_number).output);
  expect_same(x.backward(by_truth), x.backward(by_number));
  const Tensor first = narrow(x.forward(by_truth).output, 1, 0, 1);
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(facets::read_double(to_contiguous(first), i), 0);
}

TEST(Attention, AWindowHidesWhatLiesBeforeIt) {
  const Operands x(1, 150, 150, 2, 2, 16);
  for (const int32_t window : {0, 5, 64, 100}) {
    std::vector<int32_t> first;
    for (int32_t i = 0; i < 150; ++i) first.push_back(std::max(i - window, 0));
    const SdpaOptions by_window{.causal = true, .window = window},
        by_key{.causal = true, .first_key = Tensor::of(first, {1, 150})};
    expect_same_bits(x.forward(by_window).output, x.forward(by_key).output);
    expect_same(x.backward(by_window), x.backward(by_key));
  }
}

TEST(Attention, AStepOfACacheHasTheBitsOfTheWholeSequence) {
  const Operands x(2, 130, 130, 4, 2, 32);
  const Tensor whole = x.forward({.causal = true, .window = 80}).output;
  // Room for 200 keys; behind each sequence the cache holds what an earlier one left.
  const Tensor k = cat({x.k, facets::sample_tensor(7, {2, 70, 2, 32})}, 1),
               v = cat({x.v, facets::sample_tensor(8, {2, 70, 2, 32})}, 1);
  for (int64_t i = 0; i < v.numel(); ++i)
    if (i / (2 * 32) % 200 >= 130) v.data<float>()[i] = NAN;
  for (const int64_t queries : {1, 3}) {
    std::vector<Tensor> q;
    const std::vector<int32_t> lengths{130, 67};
    for (int64_t b = 0; b < 2; ++b)
      q.push_back(narrow(narrow(x.q, 0, b, 1), 1, lengths[static_cast<size_t>(b)] - queries, queries));
    const Tensor out = sdpa(cat(q, 0), k, v, {.causal = true, .window = 80, .lengths = Tensor::of(lengths, {2})});
    for (int64_t b = 0; b < 2; ++b)
      expect_same_bits(narrow(out, 0, b, 1),
                       narrow(narrow(whole, 0, b, 1), 1, lengths[static_cast<size_t>(b)] - queries, queries));
  }
}

// A plan of memory counts what a kernel takes while it runs (OpDef::room).
TEST(Attention, TheBackwardTakesTheRoomThatItStates) {
  struct Case {
    int64_t B, S, Hq, Hkv, D;
    DType dtype;
  };
  const Case cases[] = {{2, 256, 8, 4, 128, DType::f32},
                        {1, 200, 6, 3, 32, DType::f32},
                        {2, 512, 4, 1, 64, DType::bf16},
                        {1, 1024, 2, 2, 128, DType::f32},
                        {1, 40, 2, 1, 8, DType::f64}};
  for (const Case& c : cases) {
    for (const int threads : {1, 2, 3}) {
      RankContext context({.threads = threads});
      const RankContext::Scope scope(context);
      const auto sample = [&](uint64_t seed, int64_t heads) {
        return cast(facets::sample_tensor(seed, {c.B, c.S, heads, c.D}), c.dtype);
      };
      const Tensor q = sample(1, c.Hq), k = sample(2, c.Hkv), v = sample(3, c.Hkv);
      const SdpaResult forward = sdpa_with_logsumexp(q, k, v, {.causal = true});
      const Tensor first = Tensor::of(std::vector<int32_t>(static_cast<size_t>(c.B * c.S), 0), {c.B, c.S}),
                   last = Tensor::of(std::vector<int32_t>(static_cast<size_t>(c.B * c.S), static_cast<int32_t>(c.S)),
                                     {c.B, c.S});
      const Tensor inputs[] = {sample(4, c.Hq), q, k, v, forward.output, forward.logsumexp, first, last};
      const OpDef& op = find_op("sdpa_backward");
      const Attrs attrs = find_op("sdpa_backward").samples()[0].attrs;
      const OpCall call{op, inputs, attrs};
      const std::vector<Tensor> outputs{Tensor::empty(q.extents(), c.dtype), Tensor::empty(k.extents(), c.dtype),
                                        Tensor::empty(v.extents(), c.dtype)};
      Allocator& memory = context.allocator();
      memory.reset_peak();
      const int64_t before = memory.statistics().current_bytes;
      op.kernel(call, outputs);
      const auto taken = static_cast<double>(memory.statistics().peak_bytes - before),
                 stated = static_cast<double>(op.room(call, threads));
      EXPECT_LE(taken, stated) << c.S << " x " << c.D << " on " << threads;
      if (threads > 1) continue;  // one may be done before another begins
      EXPECT_GE(taken, 0.94 * stated) << c.S << " x " << c.D;
    }
  }
}

TEST(Attention, SaysWhatDoesNotFit) {
  const Operands x(2, 4, 6, 4, 2, 8);
  const auto message = [&](const SdpaOptions& options) {
    try {
      sdpa(x.q, x.k, x.v, options);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(message({.causal = true, .window = -3}).find("a window of -3 keys before the last one; expected 0 or more"),
            std::string::npos);
  EXPECT_NE(
      message({.score_cap = -2}).find("score_cap is -2; expected a positive number, or 0 for scores without a cap"),
      std::string::npos);
  EXPECT_THROW(sdpa(x.q, x.k, x.v, {.score_cap = INFINITY}), UsageError);
  EXPECT_NE(
      message({.window = 3})
          .find("a window of 3 keys before the last one needs what sets the last one: causal, lengths or last_key"),
      std::string::npos);
  EXPECT_NE(message({.lengths = Tensor::of(std::vector<int32_t>{1, 2, 3})})
                .find("lengths is [3] i32 cpu; expected integers [2]"),
            std::string::npos)
      << message({.lengths = Tensor::of(std::vector<int32_t>{1, 2, 3})});
  EXPECT_NE(message({.mask = sample_mask({1, 4, 6})})
                .find("mask is [1, 4, 6] f32 cpu; expected booleans or floats [2 or 1, 4 or 1, 4 or 1, 6]"),
            std::string::npos)
      << message({.mask = sample_mask({1, 4, 6})});
  EXPECT_NE(message({.mask = sample_mask({2, 2, 4, 6})}).find("expected booleans or floats"), std::string::npos);
  EXPECT_THROW(sdpa_partial(x.q, x.k, x.v, {.mask = sample_mask({1, 1, 4, 6})}), UsageError);
}

TEST(Attention, QueriesThatSeeNoKeyGiveZerosAndTakeNone) {
  const Operands x(1, 6, 9, 2, 1, 8);
  const SdpaOptions options{.last_key = last_keys(std::vector<int32_t>(6, -1))};
  const Tensor zero = Tensor::of(std::vector<float>(6 * 2 * 8, 0.0f), {1, 6, 2, 8}),
               none = Tensor::of(std::vector<float>(9 * 8, 0.0f), {1, 9, 1, 8});
  const SdpaResult result = x.forward(options);
  expect_same_bits(result.output, zero);
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(result.logsumexp.data<float>()[i], -INFINITY);
  expect_same(x.backward(options), {zero, none, none});
}

}  // namespace
}  // namespace tutti
