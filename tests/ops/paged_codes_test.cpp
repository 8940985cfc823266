// Attention over pages of codes, against attention over the numbers that the codes stand for, and over those that were
// written.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/support/message_of.h"
#include "tests/support/row_code.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/paged_attention.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/write_pages.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

constexpr int64_t kPage = 16;
constexpr DType kCodes[] = {DType::i8, DType::f8e4m3fn};

// One sequence of keys and values, what they become as codes, and shuffled pages of these beside pages of NaN.
struct Coded {
  Coded(int64_t keys, int64_t heads, int64_t dim, DType dtype, DType code) {
    k = drawn(2, {1, keys, heads, dim}, dtype);
    v = drawn(3, {1, keys, heads, dim}, dtype, -1, 3);
    const int64_t W = (keys + kPage - 1) / kPage, P = 2 * W + 1;
    const auto new_codes = [&] { return cast(ones({P, heads, kPage, dim}), code); };
    const auto new_scales = [&] { return full({P, heads, kPage}, std::nan(""), DType::f32); };
    pages = {.keys = new_codes(), .values = new_codes(), .table = Tensor::empty({1, W}, DType::i32)};
    pages.key_scales = new_scales();
    pages.value_scales = new_scales();
    for (int64_t w = 0; w < W; ++w) pages.table.data<int32_t>()[w] = static_cast<int32_t>((2 * (W - w) + 1) % P);
    slots = Tensor::empty({keys}, DType::i64);
    for (int64_t i = 0; i < keys; ++i)
      slots.data<int64_t>()[i] = pages.table.data<int32_t>()[i / kPage] * kPage + i % kPage;
    write();
  }
  void write() {
    const Extents rows{k.extent(1), k.extent(2), k.extent(3)};
    write_page_codes_(pages.keys, pages.key_scales, reshape(k, {rows[0], rows[1], rows[2]}), slots);
    write_page_codes_(pages.values, pages.value_scales, reshape(v, {rows[0], rows[1], rows[2]}), slots);
    k_numbers = through_codes(k, pages.keys.dtype());
    v_numbers = through_codes(v, pages.keys.dtype());
  }
  Tensor expected(const Tensor& q, const SdpaOptions& options) const {
    return cast(sdpa(cast(q, DType::f32), k_numbers, v_numbers, options), q.dtype());
  }
  Tensor k, v, k_numbers, v_numbers, slots;
  KeyPages pages;
};

Tensor positions(int64_t first, int64_t count) {
  return reshape(arange(first, first + count, 1, DType::i32), {1, count});
}

TEST(PagedCodes, HaveTheBitsOfTheirNumbersInOneTensor) {
  int64_t made = 0;
  for (const DType code : kCodes) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t keys : {1, 15, 64, 100, 300}) {
        for (const int64_t dim : {1, 24, 64, 130}) {
          RankContext context({.threads = 1 << made++ % 3});
          const RankContext::Scope scope(context);
          const Coded x(keys, 3, dim, dtype, code);
          const Tensor q = drawn(1, {1, keys, 9, dim}, dtype);
          for (const int window : {-1, 0, 20}) {
            SdpaOptions whole{.causal = true};
            PagedSdpaOptions paged;
            if (window >= 0) whole.window = paged.window = window;
            if (window == 20) whole.score_cap = paged.score_cap = 3;
            const Tensor expected = x.expected(q, whole);
            for (const int64_t chunk : {keys, int64_t{1}, int64_t{7}, int64_t{33}}) {
              for (int64_t first = 0; first < keys; first += chunk == 1 ? 13 : chunk) {
                const int64_t count = std::min(chunk, keys - first);
                expect_same_bits(
                    sdpa_paged(narrow(q, 1, first, count), x.pages, positions(first, count), paged),
                    narrow(expected, 1, first, count),
                    fmt::format("{} of {} keys of {}, {} {}", count, keys, dim, name_of(dtype), name_of(code)));
              }
            }
          }
        }
      }
    }
  }
}

// One key has all the weight, so that its value is the result.
TEST(PagedCodes, EveryCodeIsReadAsItsNumber) {
  for (const DType code : kCodes) {
    for (const float scale : {1.0F, 0.37F, 1e-30F, -3e5F}) {
      KeyPages pages{.keys = cast(zeros({1, 1, 1, 256}), code), .values = cast(zeros({1, 1, 1, 256}), code)};
      pages.table = Tensor::of(std::vector<int32_t>{0}, {1, 1});
      pages.key_scales = ones({1, 1, 1});
      pages.value_scales = full({1, 1, 1}, static_cast<double>(scale));
      for (int bits = 0; bits < 256; ++bits)
        static_cast<uint8_t*>(pages.values.raw_data())[bits] = static_cast<uint8_t>(bits);
      const Tensor out = sdpa_paged(ones({1, 1, 1, 256}), pages, positions(0, 1));
      for (int bits = 0; bits < 256; ++bits) {
        const float expected = decoded(static_cast<uint8_t>(bits), code, scale), found = out.data<float>()[bits];
        EXPECT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected))) << bits << ": " << found;
      }
    }
  }
}

TEST(PagedCodes, NearlyEqualCallsAreApart) {
  const Coded a(40, 2, 16, DType::f32, DType::i8), b(40, 2, 16, DType::f32, DType::f8e4m3fn);
  const Tensor q = drawn(1, {1, 3, 4, 16}, DType::f32), last = positions(37, 3);
  const auto expect = [&](const Coded& x, const Tensor& from) {
    const auto numbers = cast(from, DType::f32);
    expect_same_bits(sdpa_paged(from, x.pages, last),
                     cast(sdpa(numbers, x.k_numbers, x.v_numbers, {.causal = true}), from.dtype()));
  };
  for (const Coded* x : {&a, &b, &a}) {
    for (const Tensor& from : {q, cast(q, DType::bf16)}) expect(*x, from);
  }
  // The same codes with the scales of the other tensor.
  KeyPages swapped = a.pages;
  std::swap(swapped.key_scales, swapped.value_scales);
  EXPECT_NE(*sdpa_paged(q, swapped, last).data<float>(), *sdpa_paged(q, a.pages, last).data<float>());
}

// A view with other elements around it in its last dim.
Tensor in_the_middle(const Tensor& t) {
  const int last = t.ndim() - 1;
  return narrow(cat({t, t, t}, last), last, t.extent(last), t.extent(last));
}

TEST(PagedCodes, ViewsOfPagesAndTablesHoldTheSame) {
  for (const DType code : kCodes) {
    Coded x(90, 3, 20, DType::f32, code);
    const Tensor q = drawn(1, {1, 5, 6, 20}, DType::f32), last = positions(85, 5);
    const Tensor expected = sdpa_paged(q, x.pages, last);
    const int64_t P = x.pages.keys.extent(0), W = x.pages.table.extent(1);
    KeyPages views = x.pages;
    Tensor wide = full({3, W + 4}, 1e6, DType::i64);
    for (int64_t w = 0; w < W; ++w) wide.data<int64_t>()[(W + 4) + 2 + w] = x.pages.table.data<int32_t>()[w];
    views.table = narrow(narrow(wide, 0, 1, 1), 1, 2, W);
    views.keys = in_the_middle(x.pages.keys);
    views.values = permute(to_contiguous(permute(x.pages.values, {2, 0, 3, 1})), {1, 3, 0, 2});
    views.key_scales = in_the_middle(x.pages.key_scales);
    views.value_scales = permute(to_contiguous(permute(x.pages.value_scales, {2, 1, 0})), {2, 1, 0});
    expect_same_bits(sdpa_paged(q, views, last), expected, fmt::format("{} pages of {}", P, name_of(code)));
  }
}

TEST(PagedCodes, PagesAndRowsThatNoQuerySeesAreNotRead) {
  for (const DType code : kCodes) {
    Coded x(200, 2, 16, DType::f32, code);
    const Tensor q = drawn(1, {1, 5, 4, 16}, DType::f32);
    const PagedSdpaOptions window{.window = 40};
    const Tensor expected = sdpa_paged(q, x.pages, positions(180, 5), window);
    for (int64_t w = 0; w < 140 / kPage; ++w) x.pages.table.data<int32_t>()[w] = -1;
    for (int64_t key = 185; key < 200; ++key) {  // behind the last key
      const int64_t slot = x.slots.data<int64_t>()[key];
      for (int64_t h = 0; h < 2; ++h)
        x.pages.key_scales.data<float>()[(slot / kPage * 2 + h) * kPage + slot % kPage] = std::nanf("");
    }
    expect_same_bits(sdpa_paged(q, x.pages, positions(180, 5), window), expected, "released pages");
    for (const float zero : {*sdpa_paged(narrow(q, 1, 0, 1), x.pages, positions(-1, 1)).data<float>()})
      EXPECT_EQ(zero, 0.0F);
  }
}

TEST(PagedCodes, ARowThatIsNotFiniteIsNotHidden) {
  for (const DType code : kCodes) {
    for (const bool in_keys : {true, false}) {
      Coded x(70, 2, 8, DType::f32, code);
      const Tensor q = drawn(1, {1, 1, 2, 8}, DType::f32);
      const Tensor before = sdpa_paged(q, x.pages, positions(29, 1));
      (in_keys ? x.k : x.v).data<float>()[(30 * 2 + 1) * 8 + 3] = in_keys ? INFINITY : std::nanf("");
      x.write();
      expect_same_bits(sdpa_paged(q, x.pages, positions(29, 1)), before);
      const Tensor after = sdpa_paged(q, x.pages, positions(30, 1));
      for (int64_t at = 0; at < 2 * 8; ++at) EXPECT_EQ(std::isnan(after.data<float>()[at]), at >= 8) << at;
    }
  }
}

// The error that codes cost, relative to values of magnitude 1: a code of 8 bits is off by a 254th of the largest
// element at most, one of e4m3fn by a 16th of itself.
TEST(PagedCodes, AreCloseToTheNumbersThatWereWritten) {
  for (const DType code : kCodes) {
    for (const int64_t keys : {20, 300}) {
      const Coded x(keys, 2, 64, DType::f32, code);
      const Tensor q = drawn(1, {1, 5, 6, 64}, DType::f32), last = positions(keys - 5, 5);
      const Tensor exact = sdpa(cast(q, DType::f64), cast(x.k, DType::f64), cast(x.v, DType::f64), {.causal = true}),
                   found = sdpa_paged(q, x.pages, last);
      double largest = 0, sum = 0;
      for (int64_t i = 0; i < exact.numel(); ++i) {
        const double error = std::fabs(exact.data<double>()[i] - static_cast<double>(found.data<float>()[i]));
        largest = std::max(largest, error);
        sum += error;
      }
      const double mean = sum / static_cast<double>(exact.numel());
      RecordProperty(fmt::format("{}_{}", name_of(code), keys), fmt::format("{:.2e}, {:.2e}", largest, mean));
      EXPECT_LT(largest, code == DType::i8 ? 0.02 : 0.1) << keys;
      EXPECT_LT(mean, code == DType::i8 ? 0.004 : 0.02) << keys;
      EXPECT_GT(mean, 0) << keys;
    }
  }
}

TEST(PagedCodes, BadOperandsAreNamed) {
  const Coded x(20, 2, 8, DType::f32, DType::i8);
  const Tensor q = drawn(1, {1, 2, 4, 8}, DType::f32), last = positions(0, 2);
  const auto message = [&](const Tensor& from, const KeyPages& pages) {
    return message_of([&] { sdpa_paged(from, pages, last); });
  };
  KeyPages wrong = x.pages;
  wrong.value_scales = {};
  EXPECT_EQ(message(q, wrong), "sdpa_paged: scales of values are <undefined>; expected f32 [5, 2, 16]");
  wrong.value_scales = ones({5, 2, 8});
  EXPECT_EQ(message(q, wrong), "sdpa_paged: scales of values are [5, 2, 8] f32 cpu; expected f32 [5, 2, 16]");
  wrong.key_scales = wrong.value_scales = {};
  EXPECT_EQ(
      message(q, wrong),
      "sdpa_paged: q, keys and values must have one float dtype, they are f32, i8 and i8; give codes their scales");
  wrong = x.pages;
  wrong.values = cast(wrong.values, DType::f8e4m3fn);
  EXPECT_EQ(message(q, wrong),
            "sdpa_paged: q is f32, keys and values with scales are i8 and f8e4m3fn; expected q of f32, bf16 or f16 and "
            "codes of one dtype, i8 or f8e4m3fn");
  EXPECT_EQ(message(cast(q, DType::f64), x.pages),
            "sdpa_paged: q is f64, keys and values with scales are i8 and i8; expected q of f32, bf16 or f16 and codes "
            "of one dtype, i8 or f8e4m3fn");
  wrong = x.pages;
  wrong.table = Tensor::of(std::vector<int32_t>{0, 5}, {1, 2});
  EXPECT_EQ(message(q, wrong), "sdpa_paged: page 1 of sequence 0 is 5; there are 5 pages");
}

}  // namespace
}  // namespace tutti
