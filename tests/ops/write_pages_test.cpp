// Keys and values written as codes, against the definition of the codes.
#include "tutti/ops/write_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "tests/support/message_of.h"
#include "tests/support/row_code.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

constexpr DType kCodes[] = {DType::i8, DType::f8e4m3fn};

struct CodePages {
  Tensor codes, scales;
  CodePages(const Extents& sizes, DType code)
      : codes(cast(full({sizes[0], sizes[1], sizes[2], sizes[3]}, 5), code)),
        scales(full({sizes[0], sizes[1], sizes[2]}, 9, DType::f32)) {}
};

// Rows of all magnitudes, some of them zero, tiny, huge, or with an element that is not finite.
Tensor odd_rows(Draws& random, const Extents& sizes, DType dtype) {
  const Tensor rows = Tensor::empty(sizes, DType::f32);
  float* x = rows.data<float>();
  const int64_t D = sizes[2];
  for (int64_t r = 0; r < sizes[0] * sizes[1]; ++r, x += D) {
    const float magnitude = std::ldexp(1.0F, static_cast<int>(random() % 240) - 125);
    for (int64_t d = 0; d < D; ++d) {
      // Elements far below the largest one meet the subnormal numbers of e4m3fn, and ties.
      const float small = std::ldexp(1.0F, -static_cast<int>(random() % 20));
      x[d] = random() % 5 == 0 ? magnitude * std::round(64 * random.within(-1, 1))
                               : magnitude * small * random.within(-1, 1);
    }
    const int64_t at = D == 0 ? 0 : static_cast<int64_t>(random() % static_cast<uint64_t>(D));
    const uint32_t kind = D == 0 ? 9 : random() % 12;
    if (kind == 0) std::fill(x, x + D, random() % 2 == 0 ? 0.0F : -0.0F);
    if (kind == 1) std::fill(x, x + D, 1e-41F);
    if (kind == 2) x[at] = std::nanf("");
    if (kind == 3) x[at] = random() % 2 == 0 ? INFINITY : -INFINITY;
    if (kind == 4) x[at] = dtype == DType::f16 ? 65504 : 3.3e38F;
    if (kind == 5) std::fill(x, x + D, 5.2e-36F);  // scales just below and above the least normal number
    if (kind == 6) std::fill(x, x + D, 5.4e-36F);
  }
  return cast(rows, dtype);
}

int64_t slot_at(const Tensor& slots, int64_t t) {
  return load_as_int64(static_cast<const char*>(slots.raw_data()) + t * slots.strides()[0] * itemsize(slots.dtype()),
                       slots.dtype());
}

// Whether the pages hold the codes of these rows in their slots, of which a later one counts, and else what they held.
void expect_codes(const CodePages& pages, const CodePages& before, const Tensor& rows, const Tensor& slots,
                  const std::string& what) {
  const Tensor x = to_contiguous(cast(rows, DType::f32)), codes = to_contiguous(pages.codes),
               scales = to_contiguous(pages.scales);
  const int64_t P = codes.extent(0), H = codes.extent(1), N = codes.extent(2), D = codes.extent(3);
  const Tensor old_codes = to_contiguous(before.codes), old_scales = to_contiguous(before.scales);
  for (int64_t slot = 0; slot < P * N; ++slot) {
    int64_t row = -1;
    for (int64_t t = 0; t < slots.extent(0); ++t) row = slot_at(slots, t) == slot ? t : row;
    for (int64_t h = 0; h < H; ++h) {
      const int64_t place = (slot / N * H + h) * N + slot % N;
      const auto* const bytes = static_cast<const uint8_t*>(codes.raw_data()) + place * D;
      if (row < 0) {
        const auto* const old_bytes = static_cast<const uint8_t*>(old_codes.raw_data()) + place * D;
        ASSERT_TRUE(std::equal(bytes, bytes + D, old_bytes)) << what;
        ASSERT_EQ(std::bit_cast<uint32_t>(scales.data<float>()[place]),
                  std::bit_cast<uint32_t>(old_scales.data<float>()[place]))
            << what;
        continue;
      }
      const std::span<const float> numbers(x.data<float>() + (row * H + h) * D, static_cast<size_t>(D));
      const CodedRow expected = coded_row(numbers, codes.dtype());
      if (std::isnan(expected.scale)) ASSERT_TRUE(std::isnan(scales.data<float>()[place])) << what;
      else
        ASSERT_EQ(std::bit_cast<uint32_t>(scales.data<float>()[place]), std::bit_cast<uint32_t>(expected.scale))
            << what << ", row " << row;
      for (int64_t d = 0; d < D; ++d)
        ASSERT_EQ(bytes[d], expected.codes[static_cast<size_t>(d)])
            << what << ", row " << row << ", element " << d << ": "
            << fmt::format("{:a}", numbers[static_cast<size_t>(d)]);
    }
  }
}

CodePages copy_of(const CodePages& pages) {
  CodePages copy = pages;
  copy.codes = clone(pages.codes);
  copy.scales = clone(pages.scales);
  return copy;
}

TEST(WritePageCodes, AreThoseOfTheDefinition) {
  Draws random{3};
  for (const DType code : kCodes) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t D : {0, 1, 2, 7, 8, 9, 16, 31, 64, 80, 128, 257}) {
        for (const int64_t T : {0, 1, 3, 40}) {
          RankContext context({.threads = 1 << random() % 3});
          const RankContext::Scope scope(context);
          const int64_t H = 1 + static_cast<int64_t>(random() % 3), N = 4, P = 12;
          const CodePages pages({P, H, N, D}, code), before = copy_of(pages);
          const Tensor rows = odd_rows(random, {T, H, D}, dtype);
          const Tensor slots = Tensor::empty({T}, random() % 2 == 0 ? DType::i64 : DType::i32);
          for (int64_t t = 0; t < T; ++t)
            store_from_int64(static_cast<char*>(slots.raw_data()) + t * itemsize(slots.dtype()), slots.dtype(),
                             random() % 8 == 0 ? -1 : (t * 7 + 5) % (P * N));
          write_page_codes_(pages.codes, pages.scales, rows, slots);
          expect_codes(pages, before, rows, slots,
                       fmt::format("{} rows of {} {} as {}", T, D, name_of(dtype), name_of(code)));
        }
      }
    }
  }
}

TEST(WritePageCodes, RowsAreOverwrittenAndOthersStay) {
  Draws random{5};
  for (const DType code : kCodes) {
    CodePages pages({3, 2, 4, 24}, code);
    for (int round = 0; round < 20; ++round) {
      const CodePages before = copy_of(pages);
      const int64_t T = 1 + static_cast<int64_t>(random() % 6), first = static_cast<int64_t>(random() % 7);
      const Tensor rows = odd_rows(random, {T, 2, 24}, DType::f32), slots = arange(first, first + T, 1, DType::i64);
      write_page_codes_(pages.codes, pages.scales, rows, slots);
      expect_codes(pages, before, rows, slots, fmt::format("round {}", round));
    }
  }
}

TEST(WritePageCodes, ViewsWithGapsHoldTheSame) {
  Draws random{7};
  const Tensor slots = narrow(arange(0, 20, 1, DType::i64), 0, 3, 8);
  for (const DType code : kCodes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      // Heads before rows, elements before both; pages inside others, and with elements as the first dim.
      const Tensor by_heads = permute(odd_rows(random, {3, 8, 24}, dtype), {1, 0, 2}),
                   apart = permute(odd_rows(random, {24, 3, 8}, dtype), {2, 1, 0});
      for (const Tensor& rows : {by_heads, apart}) {
        CodePages inside({6, 3, 4, 40}, code), turned({24, 6, 3, 4}, code);
        inside.codes = narrow(narrow(inside.codes, 3, 5, 24), 0, 1, 4);
        inside.scales = narrow(inside.scales, 0, 1, 4);
        turned.codes = permute(turned.codes, {1, 2, 3, 0});
        turned.scales = permute(full({4, 3, 6}, 9, DType::f32), {2, 1, 0});
        for (const CodePages& pages : {inside, turned}) {
          const CodePages before = copy_of(pages);
          write_page_codes_(pages.codes, pages.scales, rows, slots);
          expect_codes(pages, before, rows, slots, std::string(name_of(code)));
        }
      }
    }
  }
}

TEST(WritePageCodes, BadOperandsAreNamed) {
  const CodePages pages({5, 2, 16, 8}, DType::i8);
  const Tensor rows = ones({2, 2, 8}), slots = Tensor::of(std::vector<int64_t>{0, 1}, {2});
  const auto message = [&](const Tensor& codes, const Tensor& scales, const Tensor& x, const Tensor& s) {
    return message_of([&] { write_page_codes_(codes, scales, x, s); });
  };
  EXPECT_EQ(message(pages.codes, pages.scales, rows, Tensor::of(std::vector<int64_t>{0, 80}, {2})),
            "write_page_codes_: slot 80 of row 1; 5 pages of 16 keys have slots 0 to 79");
  EXPECT_EQ(message(pages.codes, pages.scales, ones({2, 3, 8}), slots),
            "write_page_codes_: rows are [2, 3, 8] f32 cpu, pages [5, 2, 16, 8] i8 cpu; expected rows [T, Hkv, D] of "
            "pages [P, Hkv, N, D]");
  EXPECT_EQ(message(pages.codes, pages.scales, rows, ones({2})),
            "write_page_codes_: slots are [2] f32 cpu; expected integers [2]");
  EXPECT_EQ(message(cast(pages.codes, DType::u8), pages.scales, rows, slots),
            "write_page_codes_: rows are [2, 2, 8] f32 cpu, codes [5, 2, 16, 8] u8 cpu; expected rows of f32, bf16 or "
            "f16 and codes of i8 or f8e4m3fn");
  EXPECT_EQ(message(pages.codes, pages.scales, cast(rows, DType::f64), slots),
            "write_page_codes_: rows are [2, 2, 8] f64 cpu, codes [5, 2, 16, 8] i8 cpu; expected rows of f32, bf16 or "
            "f16 and codes of i8 or f8e4m3fn");
  EXPECT_EQ(message(pages.codes, narrow(pages.scales, 2, 0, 8), rows, slots),
            "write_page_codes_: scales are [5, 2, 8] f32 cpu; expected f32 [5, 2, 16], one for each row of "
            "[5, 2, 16, 8] i8 cpu");
}

}  // namespace
}  // namespace tutti
