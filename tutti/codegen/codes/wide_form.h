// What code_lanes.h does, with registers of 16 lanes. Private to the products of codes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tutti/codegen/codes/code_lanes.h"
#include "tutti/codegen/wide.h"

namespace tutti::codegen::codes {

struct WideForm {
  static constexpr int kLanes = 16;

  // Words of 16 rows become the lanes of 16 words: pairs, quadruples, then quarters of registers.
  template <int kVectors>
  [[TUTTI_WIDE]] static void load_line(const CodeColumns& c, int64_t line, uint32_t* words) {
    constexpr int64_t kColumns = kVectors * kLanes;
    for (int64_t v = 0; v < kVectors; ++v) {
      uint8_t rest[kLanes][kLineBytes];
      const uint8_t* rows[kLanes];
      find_line<kLanes>(c, line, v * kLanes, kColumns, rest, rows);
      __m512i r[kLanes], t[kLanes];
      for (int j = 0; j < 16; ++j) r[j] = _mm512_loadu_si512(rows[j]);
#pragma GCC unroll 8
      for (int j = 0; j < 16; j += 2) {
        t[j] = _mm512_unpacklo_epi32(r[j], r[j + 1]);
        t[j + 1] = _mm512_unpackhi_epi32(r[j], r[j + 1]);
      }
      // In each quarter now: words 0 to 3 of it, of four rows.
#pragma GCC unroll 4
      for (int j = 0; j < 16; j += 4) {
        r[j] = _mm512_unpacklo_epi64(t[j], t[j + 2]), r[j + 1] = _mm512_unpackhi_epi64(t[j], t[j + 2]);
        r[j + 2] = _mm512_unpacklo_epi64(t[j + 1], t[j + 3]), r[j + 3] = _mm512_unpackhi_epi64(t[j + 1], t[j + 3]);
      }
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q) {
        const __m512i a = _mm512_shuffle_i32x4(r[q], r[q + 4], 0x88), b = _mm512_shuffle_i32x4(r[q], r[q + 4], 0xdd);
        const __m512i d = _mm512_shuffle_i32x4(r[q + 8], r[q + 12], 0x88),
                      e = _mm512_shuffle_i32x4(r[q + 8], r[q + 12], 0xdd);
        uint32_t* to = words + q * kColumns + v * kLanes;
        _mm512_store_si512(to, _mm512_shuffle_i32x4(a, d, 0x88));
        _mm512_store_si512(to + 4 * kColumns, _mm512_shuffle_i32x4(b, e, 0x88));
        _mm512_store_si512(to + 8 * kColumns, _mm512_shuffle_i32x4(a, d, 0xdd));
        _mm512_store_si512(to + 12 * kColumns, _mm512_shuffle_i32x4(b, e, 0xdd));
      }
    }
  }

  template <bool kSpecial, int kVectors, class Lanes, class Sink>
  [[gnu::always_inline, TUTTI_WIDE]] static void visit_codes(const Lanes& lanes, const uint32_t* words,
                                                             int64_t first_word, int64_t begin, int64_t end,
                                                             Sink& sink) {
    for (int64_t p = begin; p < end;) {
      const int64_t word = p / Lanes::kPerWord, next = std::min(end, (word + 1) * Lanes::kPerWord);
      const int64_t place = lanes.place(word);
      const uint32_t* of_rows = words + (word - first_word) * kVectors * kLanes;
      if (next - p == Lanes::kPerWord) {
#pragma GCC unroll 8
        for (int i = 0; i < static_cast<int>(Lanes::kPerWord); ++i)
          visit_code<kSpecial, kVectors>(lanes, of_rows, i, place, p + i, sink);
        p = next;
      } else {
        for (; p < next; ++p)
          visit_code<kSpecial, kVectors>(lanes, of_rows, static_cast<int>(p % Lanes::kPerWord), place, p, sink);
      }
    }
  }
  template <bool kSpecial, int kVectors, class Lanes, class Sink>
  [[gnu::always_inline, TUTTI_WIDE]] static void visit_code(const Lanes& lanes, const uint32_t* of_rows, int i,
                                                            int64_t place, int64_t k, Sink& sink) {
    for (int v = 0; v < kVectors; ++v)
      sink.take(k, v, lanes.template numbers<kSpecial>(_mm512_load_si512(of_rows + v * kLanes), i, place, v));
  }
};

}  // namespace tutti::codegen::codes
