// Codes of several rows as columns of f32, as the tiles of a product read them. Private to the products of codes.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "tutti/codegen/codes/code_lanes.h"
#include "tutti/codegen/gemm/decoded.h"

namespace tutti::codegen::codes {

// to[(p - begin) * width + j] becomes code p of row j as a number, for the codes [begin, end) of 8 * kVectors rows;
// those of rows that are not there have the code 0.
template <int kVectors, class Lanes>
void decode_lines(const CodeColumns& c, const Lanes& lanes, int64_t begin, int64_t end, float* to, int64_t width) {
  constexpr int64_t kLineCodes = kLineWords * Lanes::kPerWord;
  __m256i words[kLineWords][kVectors];
  for (int64_t p = begin; p < end;) {
    const int64_t line = p / kLineCodes, end_of_line = std::min(end, (line + 1) * kLineCodes);
    load_line(c, line, words);
    const bool is_special = lanes.may_be_special(words);
    while (p < end_of_line) {
      const int64_t word = p / Lanes::kPerWord, next = std::min(end_of_line, (word + 1) * Lanes::kPerWord);
      const int64_t place = lanes.place(word);
      const auto& of_rows = words[word - line * kLineWords];
      const auto decode = [&](int i) __attribute__((always_inline)) {
        for (int v = 0; v < kVectors; ++v)
          _mm256_storeu_ps(to + (word * Lanes::kPerWord + i - begin) * width + 8 * v,
                           is_special ? lanes.template numbers<true>(of_rows[v], i, place, v)
                                      : lanes.template numbers<false>(of_rows[v], i, place, v));
      };
      if (next - p == Lanes::kPerWord) {
#pragma GCC unroll 8
        for (int i = 0; i < static_cast<int>(Lanes::kPerWord); ++i) decode(i);
        p = next;
      } else {
        for (; p < next; ++p) decode(static_cast<int>(p % Lanes::kPerWord));
      }
    }
  }
}

// A block of the right operand whose columns are the rows of codes; `c` and `lanes` are those of its first column on.
template <class Lanes>
void decode_block(const CodeColumns& c, const Lanes& lanes, const GemmDecodedBlock& block) {
  const int64_t end = block.first_k + block.length;
  for (int64_t first = 0, vectors = 0; first < block.columns; first += 8 * vectors) {
    const CodeColumns columns{c.first + first * c.stride, c.stride, block.columns - first, c.bytes, false};
    vectors = block.width - first >= 16 ? 2 : 1;
    if (vectors == 2) decode_lines<2>(columns, lanes.from(first), block.first_k, end, block.to + first, block.width);
    else decode_lines<1>(columns, lanes.from(first), block.first_k, end, block.to + first, block.width);
  }
}

}  // namespace tutti::codegen::codes
