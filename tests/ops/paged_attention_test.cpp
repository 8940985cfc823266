#include "tutti/ops/paged_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/write_pages.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

constexpr int64_t kPage = 16;

// One sequence of keys and values, and the pages that hold them in a shuffled order beside pages of NaN.
struct Paged {
  Paged(int64_t keys, int64_t heads, int64_t dim, DType dtype)
      : k(facets::sample_tensor(2, {1, keys, heads, dim}, dtype)),
        v(facets::sample_tensor(3, {1, keys, heads, dim}, dtype)) {
    const int64_t W = (keys + kPage - 1) / kPage, P = 2 * W + 1;
    pages.keys = full({P, heads, kPage, dim}, std::nan(""), dtype);
    pages.values = full({P, heads, kPage, dim}, std::nan(""), dtype);
    pages.table = Tensor::empty({1, W}, DType::i32);
    for (int64_t w = 0; w < W; ++w) pages.table.data<int32_t>()[w] = static_cast<int32_t>((7 * w + 3) % P);
    const Tensor slots = Tensor::empty({keys}, DType::i64);
    for (int64_t i = 0; i < keys; ++i)
      slots.data<int64_t>()[i] = pages.table.data<int32_t>()[i / kPage] * kPage + i % kPage;
    write_pages_(pages.keys, reshape(k, {keys, heads, dim}), slots);
    write_pages_(pages.values, reshape(v, {keys, heads, dim}), slots);
  }
  Tensor k, v;
  KeyPages pages;
};

template <class Fn>
void expect_message(Fn fn, const std::string& part) {
  const std::string message = message_of(fn);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

Tensor positions(int64_t first, int64_t count) {
  return reshape(arange(first, first + count, 1, DType::i32), {1, count});
}

TEST(PagedAttention, HasTheBitsOfTheSameKeysInOneTensor) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    for (const int64_t keys : {1, 15, 64, 100, 300}) {
      for (const int64_t dim : {4, 24, 64}) {
        const Paged x(keys, 3, dim, dtype);
        const Tensor q = facets::sample_tensor(1, {1, keys, 9, dim}, dtype);
        for (const int window : {-1, 0, 20}) {
          SdpaOptions whole{.causal = true};
          PagedSdpaOptions paged;
          if (window >= 0) whole.window = paged.window = window;
          if (window == 20) whole.score_cap = paged.score_cap = 3;
          const Tensor expected = sdpa(q, x.k, x.v, whole);
          // All queries, chunks of them, and the last one alone.
          expect_same_bits(sdpa_paged(q, x.pages, positions(0, keys), paged), expected, fmt::format("{} keys", keys));
          for (const int64_t chunk : {int64_t{1}, int64_t{7}, int64_t{33}}) {
            for (int64_t first = 0; first < keys; first += chunk == 1 ? 13 : chunk) {
              const int64_t count = std::min(chunk, keys - first);
              expect_same_bits(sdpa_paged(narrow(q, 1, first, count), x.pages, positions(first, count), paged),
                               narrow(expected, 1, first, count), fmt::format("{} of {} keys", count, keys));
            }
          }
        }
      }
    }
  }
}

TEST(PagedAttention, DoesNotReadPagesThatNoQuerySees) {
  Paged x(200, 2, 16, DType::f32);
  const Tensor q = facets::sample_tensor(1, {1, 5, 4, 16});
  const PagedSdpaOptions window{.window = 40};
  const Tensor expected = sdpa_paged(q, x.pages, positions(180, 5), window);
  for (int64_t w = 0; w < 140 / kPage; ++w) x.pages.table.data<int32_t>()[w] = -1;
  expect_same_bits(sdpa_paged(q, x.pages, positions(180, 5), window), expected, "released pages");
}

TEST(PagedAttention, SequencesOfABatchHaveTheBitsThatTheyHaveAlone) {
  const Paged x(100, 2, 32, DType::f32);
  const Tensor q = facets::sample_tensor(1, {3, 1, 6, 32});
  KeyPages three = x.pages;
  three.table = Tensor::empty({3, 7}, DType::i32);
  for (int b = 0; b < 3; ++b) std::memcpy(three.table.data<int32_t>() + 7 * b, x.pages.table.data<int32_t>(), 28);
  const std::vector<int32_t> last{99, -1, 31};
  const Tensor together = sdpa_paged(q, three, Tensor::of(last, {3, 1}));
  for (int64_t b = 0; b < 3; ++b) {
    RankContext context({.threads = 2});
    const RankContext::Scope scope(context);
    expect_same_bits(narrow(together, 0, b, 1),
                     sdpa_paged(narrow(q, 0, b, 1), x.pages, positions(last[static_cast<size_t>(b)], 1)),
                     fmt::format("sequence {}", b));
  }
  for (int64_t i = 6 * 32; i < 2 * 6 * 32; ++i) EXPECT_EQ(together.data<float>()[i], 0.0f);
}

TEST(PagedAttention, BadOperandsAreNamed) {
  const Paged x(20, 2, 8, DType::f32);
  const Tensor q = facets::sample_tensor(1, {1, 2, 4, 8});
  expect_message([&] { sdpa_paged(q, x.pages, positions(31, 2)); },
                 "sdpa_paged: the last key of query 1 of sequence 0 is 32; its 2 pages of 16 keys hold 32");
  expect_message([&] { sdpa_paged(q, x.pages, positions(0, 3)); },
                 "last_key is [1, 3] i32 cpu; expected integers [1, 2]");
  expect_message([&] { sdpa_paged(facets::sample_tensor(1, {1, 2, 3, 8}), x.pages, positions(0, 2)); },
                 "3 query heads cannot share 2 key heads");
  expect_message([&] { sdpa_paged(facets::sample_tensor(1, {1, 2, 4, 8}, DType::bf16), x.pages, positions(0, 2)); },
                 "must have one float dtype, they are bf16, f32 and f32; give codes their scales");
  expect_message([&] { sdpa_paged(q, x.pages, positions(0, 2), {.window = -1}); }, "a window of -1 keys");
  expect_message([&] { sdpa_paged(q, x.pages, positions(0, 2), {.score_cap = -2}); }, "score_cap is -2");
  KeyPages wrong = x.pages;
  wrong.table = Tensor::of(std::vector<int32_t>{0, 5}, {1, 2});
  expect_message([&] { sdpa_paged(q, wrong, positions(0, 2)); },
                 "sdpa_paged: page 1 of sequence 0 is 5; there are 5 pages");
  const Tensor rows = facets::sample_tensor(1, {2, 2, 8});
  expect_message([&] { write_pages_(x.pages.keys, rows, Tensor::of(std::vector<int64_t>{0, 80}, {2})); },
                 "write_pages_: slot 80 of row 1; 5 pages of 16 keys have slots 0 to 79");
  expect_message([&] { write_pages_(x.pages.keys, rows, Tensor::of(std::vector<int64_t>{0}, {1})); },
                 "slots are [1] i64 cpu; expected integers [2]");
  expect_message(
      [&] { write_pages_(x.pages.keys, narrow(rows, 2, 0, 4), Tensor::of(std::vector<int64_t>{0, 1}, {2})); },
      "write_pages_: rows are");
}

}  // namespace
}  // namespace tutti
