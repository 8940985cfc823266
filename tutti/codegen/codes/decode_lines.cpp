#include "tutti/codegen/codes/decode_lines.h"

#include <immintrin.h>

#include <algorithm>
#include <iterator>

#include "tutti/codegen/codes/wide_lanes.h"
#include "tutti/codegen/cpu_target.h"

namespace tutti::codegen::codes {
namespace {

// Writes numbers to to[k * width + column].
struct DecodeSink {
  float* to;
  int64_t width;
  [[gnu::always_inline]] void take(int64_t k, int v, __m256 numbers) const {
    _mm256_storeu_ps(to + k * width + 8 * v, numbers);
  }
};

// to[(p - begin) * width + j] becomes code p of row j as a number, for the codes [begin, end) of eight rows; those of
// rows that are not there have the code 0.
template <class Lanes>
void decode_lines(const CodeColumns& c, const Lanes& lanes, int64_t begin, int64_t end, float* to, int64_t width) {
  constexpr int64_t kLineCodes = kLineWords * Lanes::kPerWord;
  alignas(64) uint32_t words[kLineWords * NarrowForm::kLanes];
  const DecodeSink sink{to - begin * width, width};
  for (int64_t p = begin; p < end;) {
    const int64_t line = p / kLineCodes, end_of_line = std::min(end, (line + 1) * kLineCodes);
    NarrowForm::load_line<1>(c, line, words);
    bool is_special = false;
    if constexpr (Lanes::kHasSpecial) is_special = lanes.may_be_special(words, std::ssize(words));
    if (is_special) NarrowForm::visit_codes<true, 1>(lanes, words, line * kLineWords, p, end_of_line, sink);
    else NarrowForm::visit_codes<false, 1>(lanes, words, line * kLineWords, p, end_of_line, sink);
    p = end_of_line;
  }
}

// The same for sixteen rows.
template <class Lanes>
[[TUTTI_WIDE]] void decode_wide_lines(const CodeColumns& c, const Lanes& lanes, int64_t begin, int64_t end, float* to,
                                      int64_t width) {
  constexpr int64_t kLineCodes = kLineWords * Lanes::kPerWord;
  for (int64_t p = begin; p < end;) {
    const int64_t line = p / kLineCodes, end_of_line = std::min(end, (line + 1) * kLineCodes);
    uint8_t rest[kWideLanes][kLineBytes];
    const uint8_t* rows[kWideLanes];
    find_line<kWideLanes>(c, line, 0, kWideLanes, rest, rows);
    __m512i words[kWideLanes];
    for (int64_t j = 0; j < kWideLanes; ++j) words[j] = _mm512_loadu_si512(rows[j]);
    simd::transpose_words(words);
    while (p < end_of_line) {
      const int64_t word = p / Lanes::kPerWord, last = std::min(end_of_line, (word + 1) * Lanes::kPerWord);
      __m512 numbers[Lanes::kPerWord];
      lanes.numbers(words[word - line * kLineWords], lanes.place(word, 0), numbers);
      if (last - p == Lanes::kPerWord) {
        for (int64_t i = 0; i < Lanes::kPerWord; ++i) _mm512_storeu_ps(to + (p - begin + i) * width, numbers[i]);
        p = last;
      } else {
        for (; p < last; ++p) _mm512_storeu_ps(to + (p - begin) * width, numbers[p % Lanes::kPerWord]);
      }
    }
  }
}

template <class Lanes>
void decode(const CodeColumns& c, const Lanes& lanes, const GemmDecodedBlock& block) {
  const int64_t end = block.first_k + block.length;
  int64_t first = 0;
  const auto columns = [&] {
    return CodeColumns{c.first + first * c.stride, c.stride, block.columns - first, c.bytes, false};
  };
  if (has_wide_registers(cpu_target()))
    for (; first < block.columns && block.width - first >= kWideLanes; first += kWideLanes)
      with_wide(lanes.from(first), [&](const auto& wide) {
        decode_wide_lines(columns(), wide, block.first_k, end, block.to + first, block.width);
      });
  for (; first < block.columns; first += NarrowForm::kLanes)
    decode_lines(columns(), lanes.from(first), block.first_k, end, block.to + first, block.width);
}

}  // namespace

void decode_block(const CodeColumns& c, const ByteLanes& lanes, const GemmDecodedBlock& block) {
  decode(c, lanes, block);
}
void decode_block(const CodeColumns& c, const E4m3Lanes& lanes, const GemmDecodedBlock& block) {
  decode(c, lanes, block);
}
void decode_block(const CodeColumns& c, const NibbleLanes& lanes, const GemmDecodedBlock& block) {
  decode(c, lanes, block);
}

}  // namespace tutti::codegen::codes
