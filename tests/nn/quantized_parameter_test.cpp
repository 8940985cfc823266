// Parameters that change between numbers and quantized blocks, under one function. 144 bytes are a block of Q4_K and
// eight blocks of Q4_0, so that two formats have the same shapes and even the same memory.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tests/support/temporary_folder.h"
#include "tutti/autograd/tape.h"
#include "tutti/core/block_format.h"
#include "tutti/graph/compile.h"
#include "tutti/io/safetensors.h"
#include "tutti/nn/embedding.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/state_dict.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/quantized/blocks.h"
#include "tutti/ops/quantized_embedding.h"
#include "tutti/ops/quantized_linear.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::nn {
namespace {

constexpr int64_t kOut = 11, kIn = 256;

// Finite in both formats.
Tensor bytes_of_two_formats(uint64_t seed) {
  const Tensor blocks = quantized::sample_blocks(seed, BlockFormat::q4_0, kOut, kIn);
  for (int64_t row = 0; row < kOut; ++row) blocks.data<uint8_t>()[144 * row + 3] &= 0x3b;  // the f16 of minima
  return blocks;
}

struct Sequences : ::testing::TestWithParam<bool> {
  template <class Fn>
  std::function<Tensor(const Tensor&)> made(Fn fn) const {
    if (!GetParam()) return fn;
    return compile(std::move(fn), {.name = "sequence", .recompile_limit = 64});
  }
};
INSTANTIATE_TEST_SUITE_P(, Sequences, ::testing::Bool(), [](const auto& c) { return c.param ? "Compiled" : "Eager"; });

TEST_P(Sequences, ALinearHasTheFormatItHoldsNow) {
  const NoGradScope no_grad;
  Linear linear(kIn, kOut, {.bias = false});
  const auto f = made([&](const Tensor& x) { return linear.forward(x); });
  const Tensor x = facets::sample_tensor(1, {3, kIn}), dense = facets::sample_tensor(2, {kOut, kIn}),
               bytes = bytes_of_two_formats(3), other = bytes_of_two_formats(4);
  for (int round = 0; round < 3; ++round) {
    linear.weight.freeze(dense);
    expect_same_bits(f(x), tutti::linear(x, dense), fmt::format("{}", round));
    for (const BlockFormat format : {BlockFormat::q4_0, BlockFormat::q4_k, BlockFormat::q4_0}) {
      linear.weight.freeze(bytes, format);
      expect_same_bits(f(x), quantized_linear(x, bytes, format), fmt::format("{} {}", name_of(format), round));
      linear.weight.freeze(other, format);
      expect_same_bits(f(x), quantized_linear(x, other, format), fmt::format("{} {}", name_of(format), round));
    }
    EXPECT_NE(message_of([&] { linear.weight.freeze(bytes, BlockFormat::q6_k); }), "");
    expect_same_bits(f(x), quantized_linear(x, other, BlockFormat::q4_0), "after an error");
  }
}

TEST_P(Sequences, AnEmbeddingHasTheFormatItHoldsNow) {
  const NoGradScope no_grad;
  Embedding table(kOut, kIn);
  const auto f = made([&](const Tensor& ids) { return table.forward(ids); });
  const Tensor ids = Tensor::of(std::vector<int64_t>{0, 10, 3}), bytes = bytes_of_two_formats(3);
  for (int round = 0; round < 2; ++round) {
    for (const BlockFormat format : {BlockFormat::q4_0, BlockFormat::q4_k}) {
      table.weight.freeze(bytes, format);
      expect_same_bits(f(ids), quantized_embedding(bytes, ids, format), fmt::format("{} {}", name_of(format), round));
    }
  }
}

// Numbers and blocks of one parameter in one source are no choice.
TEST(QuantizedEntries, StandBesideNoNumbersOfTheSameParameter) {
  Linear linear(kIn, kOut, {.bias = false});
  const Tensor dense = facets::sample_tensor(2, {kOut, kIn}), bytes = bytes_of_two_formats(3);
  const StateDict both = {{"weight", dense}, {"weight.Q4_0", bytes}};
  EXPECT_EQ(message_of([&] { linear.load_state_dict(both); }), "the state dict holds 'weight' twice");
  const tutti::testing::TemporaryFolder folder;
  write_safetensors(folder / "both.safetensors", both);
  EXPECT_NE(
      message_of([&] { load(linear, folder / "both.safetensors"); }).find("both.safetensors holds 'weight' twice"),
      std::string::npos);
}

// Nothing of the blocks is kept between calls: what is written through a view is seen.
TEST_P(Sequences, BlocksThatAreWrittenAreReadAnew) {
  const NoGradScope no_grad;
  Linear linear(kIn, kOut, {.bias = false});
  const Tensor bytes = bytes_of_two_formats(5), x = facets::sample_tensor(1, {1, kIn});
  linear.weight.freeze(bytes, BlockFormat::q4_0);
  const auto f = made([&](const Tensor& in) { return linear.forward(in); });
  for (int turn = 0; turn < 6; ++turn) {
    bytes.data<uint8_t>()[144 * turn + 7] ^= 0x21;
    expect_same_bits(f(x), quantized_linear(x, bytes, BlockFormat::q4_0), fmt::format("{}", turn));
  }
}

// Sizes up and down, in two threads at once, which have workspaces of their own: each call has the bits that it has
// alone.
TEST(QuantizedCalls, OfTwoThreadsWithSizesUpAndDownHaveTheirBits) {
  struct Call {
    BlockFormat format;
    int64_t m, n, k;
    Tensor x, blocks, expected;
  };
  std::vector<Call> calls;
  for (const int64_t m : {1, 700, 2, 5, 0, 4})
    for (const BlockFormat format : {BlockFormat::q4_0, BlockFormat::q4_k, BlockFormat::q8_0}) {
      Call call{.format = format, .m = m, .n = m % 2 == 0 ? 17 : 1, .k = m == 5 ? 2304 : 256};
      call.x = facets::sample_tensor(6, {m, call.k});
      call.blocks = quantized::sample_blocks(7, format, call.n, call.k);
      call.expected = quantized_linear(call.x, call.blocks, format);
      calls.push_back(call);
    }
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      RankContext rank({.threads = 2});
      const RankContext::Scope scope(rank);
      for (int round = 0; round < 5; ++round)
        for (size_t i = 0; i < calls.size(); ++i) {
          const Call& call = calls[t == 0 ? i : calls.size() - 1 - i];
          expect_same_bits(quantized_linear(call.x, call.blocks, call.format), call.expected,
                           fmt::format("{} {}", name_of(call.format), call.m));
        }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tutti::nn
