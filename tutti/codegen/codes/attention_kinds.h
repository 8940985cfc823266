// What attention does with the kinds of codes. Private to coded_attention.cpp.
//
// A kind has Element, of what rows and panels are made; row_size(k) and panel_size(k) elements of a row of queries and
// of a panel of kColumns columns; functions that unpack queries and pack keys and values; the products scores() and
// weighted_sums() with panels, which call finish(row, totals of a panel's columns as two registers); and functions that
// make probabilities elements, of which 0 is that of a key that is not seen.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tutti/codegen/codes/code_type.h"
#include "tutti/codegen/codes/coded_attention.h"
#include "tutti/codegen/codes/decode_lines.h"
#include "tutti/codegen/codes/quad_panel.h"
#include "tutti/codegen/codes/softmax_row.h"
#include "tutti/codegen/codes/value_panel.h"
#include "tutti/codegen/codes/word_panel.h"
#include "tutti/codegen/cpu_target.h"

namespace tutti::codegen::codes {

// Queries whose scores are kept at once.
inline constexpr int64_t kBlock = 12;
// Keys beyond which an integer total over them might not fit 32 bits; more are added in pieces of so many.
inline constexpr int64_t kMostKeys = 32768;

// The tree over blocks of keys, aligned and anchored at key 0.
inline ContractionTree key_tree(int64_t keys) {
  ContractionTree tree;
  int32_t pending = 0;
  for (int64_t first = 0; first < keys; first += kKeyBlock) {
    tree.leaf_lengths.push_back(static_cast<int32_t>(std::min(kKeyBlock, keys - first)));
    const int64_t number = first / kKeyBlock + 1;
    const bool is_last = first + kKeyBlock >= keys;
    const int32_t merges = is_last ? pending : __builtin_ctzll(static_cast<uint64_t>(number));
    tree.merges.push_back(static_cast<uint8_t>(merges));
    pending += 1 - merges;
  }
  return tree;
}

// What is done with codes that are integers.
struct Integers {
  using Element = int16_t;
  static constexpr int64_t kColumns = kWordColumns;
  static constexpr bool kIsWide = false;
  static int64_t row_size(int64_t k) { return padded(k); }
  static int64_t panel_size(int64_t k) { return padded(k) * kColumns; }
  Integers(const CodedAttention& a)
      : a(a), q(a.codes, a.q.zero_point), k(a.codes, a.k.zero_point), v(a.codes, a.v.zero_point) {}

  void unpack_query(const uint8_t* row, int16_t* to) const { unpack_row(row, a.D, q, to); }
  void pack_keys(const uint8_t* first, int64_t count, int16_t* panel) const {
    pack_rows(first, a.k.position_stride, count, a.D, k, panel);
  }
  void pack_values(const uint8_t* first, int64_t columns, int64_t keys, int16_t* panel) const {
    pack_columns(first, a.v.position_stride, columns, keys, v, panel);
  }
  template <class Finish>
  void scores(const int16_t* rows, int64_t stride, int64_t count, const int16_t* panel, Finish finish) const {
    multiply_panel(rows, stride, count, panel, padded(a.D) / 2, [&](int64_t row, __m256i left, __m256i right) {
      finish(row, _mm256_cvtepi32_ps(left), _mm256_cvtepi32_ps(right));
    });
  }
  template <class Finish>
  void weighted_sums(const int16_t* rows, int64_t stride, int64_t count, int64_t keys, const int16_t* panel,
                     Finish finish) const {
    if (keys <= kMostKeys) {
      multiply_panel(rows, stride, count, panel, padded(keys) / 2, [&](int64_t row, __m256i left, __m256i right) {
        finish(row, _mm256_cvtepi32_ps(left), _mm256_cvtepi32_ps(right));
      });
      return;
    }
    std::vector<int64_t> totals(static_cast<size_t>(count * kColumns));
    for (int64_t first = 0; first < keys; first += kMostKeys) {
      multiply_panel(rows + first, stride, count, panel + first * kColumns,
                     padded(std::min(kMostKeys, keys - first)) / 2, [&](int64_t row, __m256i left, __m256i right) {
                       alignas(32) int32_t each[kColumns];
                       _mm256_store_si256(reinterpret_cast<__m256i*>(each), left);
                       _mm256_store_si256(reinterpret_cast<__m256i*>(each) + 1, right);
                       for (int64_t c = 0; c < kColumns; ++c)
                         totals[static_cast<size_t>(row * kColumns + c)] += each[c];
                     });
    }
    for (int64_t row = 0; row < count; ++row) {
      alignas(32) float each[kColumns];
      for (int64_t c = 0; c < kColumns; ++c)
        each[c] = static_cast<float>(totals[static_cast<size_t>(row * kColumns + c)]);
      finish(row, _mm256_load_ps(each), _mm256_load_ps(each + 8));
    }
  }
  // The code of a probability, less its zero point.
  void put_probabilities(__m256 p, int16_t* to) const {
    const __m256 zero = _mm256_set1_ps(static_cast<float>(a.p_zero_point));
    const __m256 code = integer_codes(DType::u8, p, a.p_zero_point);
    const __m256i words = _mm256_cvtps_epi32(_mm256_sub_ps(code, zero));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                     _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }

  [[gnu::always_inline, TUTTI_WIDE]] void put_wide_probabilities(__m512 p, int16_t* to) const {
    const __m512 zero = _mm512_set1_ps(static_cast<float>(a.p_zero_point));
    const __m512 whole = _mm512_roundscale_ps(p, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // NaN gives the second operand of the maximum.
    const __m512 above = _mm512_max_ps(_mm512_add_ps(whole, zero), _mm512_setzero_ps());
    const __m512 code = _mm512_min_ps(above, _mm512_set1_ps(255.0F));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(_mm512_sub_ps(code, zero))));
  }

  const CodedAttention& a;
  const ByteWords q, k, v;
};

// The same on dot units, for probabilities whose zero point is 0.
struct Quads {
  using Element = uint8_t;
  static constexpr int64_t kColumns = kQuadColumns;
  static constexpr bool kIsWide = true;
  static int64_t row_size(int64_t k) { return (k + 63) / 64 * 64; }
  static int64_t panel_size(int64_t k) { return padded_quads(k) * kColumns + 64; }
  // Bytes of rows are codes of u8, those of panels codes of i8.
  Quads(const CodedAttention& a)
      : a(a),
        flip_rows(a.codes == DType::i8 ? 0x80 : 0),
        flip_panels(a.codes == DType::i8 ? 0 : 0x80),
        of_q(a.q.zero_point + flip_rows),
        of_k(a.k.zero_point - flip_panels),
        of_v(a.v.zero_point - flip_panels) {}
  static bool has(const CodedAttention& a) {
    return cpu_target() >= CpuTarget::avx512vnni && a.p_zero_point == 0 && a.Sk <= kMostKeys;
  }

  void unpack_query(const uint8_t* row, uint8_t* to) const {
    for (int64_t p = 0; p < a.D; ++p) to[p] = row[p] ^ flip_rows;
    std::fill(to + a.D, to + row_size(a.D), uint8_t{0});
  }
  void pack_keys(const uint8_t* first, int64_t count, uint8_t* panel) const {
    pack_quad_rows(first, a.k.position_stride, count, a.D, flip_panels, panel);
    put_column_sums(panel, a.D, of_q);
  }
  void pack_values(const uint8_t* first, int64_t columns, int64_t keys, uint8_t* panel) const {
    pack_quad_columns(first, a.v.position_stride, columns, keys, flip_panels, panel);
  }
  template <class Finish>
  void scores(const uint8_t* rows, int64_t stride, int64_t count, const uint8_t* panel, Finish finish) const {
    int32_t of_rows[kBlock];
    for (int64_t i = 0; i < count; ++i)
      of_rows[i] = of_k * (of_q * static_cast<int32_t>(a.D) - sum_of_bytes(rows + i * stride, a.D));
    const int64_t quads = padded_quads(a.D) / 4;
    multiply_quads(rows, stride, of_rows, count, panel, panel + quads * 64, quads, finish);
  }
  template <class Finish>
  void weighted_sums(const uint8_t* rows, int64_t stride, int64_t count, int64_t keys, const uint8_t* panel,
                     Finish finish) const {
    int32_t of_rows[kBlock];
    for (int64_t i = 0; i < count; ++i) of_rows[i] = -of_v * sum_of_bytes(rows + i * stride, keys);
    multiply_quads(rows, stride, of_rows, count, panel, nullptr, padded_quads(keys) / 4, finish);
  }
  [[gnu::always_inline, TUTTI_WIDE]] void put_wide_probabilities(__m512 p, uint8_t* to) const {
    const __m512 whole = _mm512_roundscale_ps(p, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    // NaN gives the second operand of the maximum.
    const __m512 code = _mm512_min_ps(_mm512_max_ps(whole, _mm512_setzero_ps()), _mm512_set1_ps(255.0F));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(code)));
  }

  const CodedAttention& a;
  const uint8_t flip_rows, flip_panels;
  const int32_t of_q, of_k, of_v;  // what bytes are larger by than the numbers they stand for
};

// The same with codes of f8e4m3fn.
struct Floats {
  using Element = float;
  static constexpr int64_t kColumns = kValueColumns;
  static constexpr bool kIsWide = false;
  static int64_t row_size(int64_t k) { return k; }
  static int64_t panel_size(int64_t k) { return k * kColumns; }
  Floats(const CodedAttention& a) : a(a), of_head(ContractionTree::halving(a.D)) {}

  void unpack_query(const uint8_t* row, float* to) const { e4m3_row(row, a.D, to); }
  void pack_keys(const uint8_t* first, int64_t count, float* panel) const {
    decode_block({first, a.k.position_stride, count, a.D, false}, E4m3Lanes(), {0, a.D, 0, count, panel, kColumns});
  }
  void pack_values(const uint8_t* first, int64_t columns, int64_t keys, float* panel) const {
    for (int64_t key = 0; key < keys; ++key) {
      const uint8_t* row = first + key * a.v.position_stride;
      for (int64_t half = 0; half < kColumns; half += 8)
        _mm256_storeu_ps(panel + key * kColumns + half, half < columns
                                                            ? e4m3_at(row + half, std::min<int64_t>(8, columns - half))
                                                            : _mm256_setzero_ps());
    }
  }
  template <class Finish>
  void scores(const float* rows, int64_t stride, int64_t count, const float* panel, Finish finish) const {
    multiply_values(rows, stride, count, panel, of_head, finish);
  }
  template <class Finish>
  void weighted_sums(const float* rows, int64_t stride, int64_t count, int64_t keys, const float* panel,
                     Finish finish) const {
    multiply_values(rows, stride, count, panel, key_tree(keys), finish);
  }
  void put_probabilities(__m256 p, float* to) const { _mm256_storeu_ps(to, e4m3_rounded(p)); }
  // As e4m3_rounded() does; probabilities have no sign.
  [[gnu::always_inline, TUTTI_WIDE]] void put_wide_probabilities(__m512 p, float* to) const {
    const __m512 within = _mm512_min_ps(_mm512_set1_ps(kLargestE4m3), p);  // NaN stays, as the second operand
    const __m512i exponent =
        _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(within), _mm512_set1_epi32(0x7f800000)),
                         _mm512_set1_epi32((127 - 6) << 23));
    const __m512 magic = _mm512_castsi512_ps(_mm512_add_epi32(exponent, _mm512_set1_epi32((20 << 23) | 0x400000)));
    const __m512 rounded = _mm512_sub_ps(_mm512_add_ps(within, magic), magic);
    _mm512_storeu_ps(to, _mm512_mask_mov_ps(rounded, _mm512_cmp_ps_mask(p, p, _CMP_UNORD_Q), p));
  }

  const CodedAttention& a;
  const ContractionTree of_head;
};

}  // namespace tutti::codegen::codes
