// Codes of several rows as columns of f32, as the tiles of a product read them. Private to the products of codes.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "tutti/codegen/codes/code_lanes.h"
#include "tutti/codegen/codes/wide_form.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/decoded_block.h"

namespace tutti::codegen::codes {

// Writes numbers to to[k * width + column].
struct DecodeSink {
  float* to;
  int64_t width;
  [[gnu::always_inline]] void take(int64_t k, int v, __m256 numbers) const {
    _mm256_storeu_ps(to + k * width + 8 * v, numbers);
  }
  [[gnu::always_inline, TUTTI_WIDE]] void take(int64_t k, int v, __m512 numbers) const {
    _mm512_storeu_ps(to + k * width + 16 * v, numbers);
  }
};
template <bool kSpecial, int kVectors, class Lanes>
void decode_codes(NarrowForm, const Lanes& lanes, const uint32_t* words, int64_t first_word, int64_t begin, int64_t end,
                  const DecodeSink& sink) {
  NarrowForm::visit_codes<kSpecial, kVectors>(lanes, words, first_word, begin, end, sink);
}
template <bool kSpecial, int kVectors, class Lanes>
[[TUTTI_WIDE]] void decode_codes(WideForm, const Lanes& lanes, const uint32_t* words, int64_t first_word, int64_t begin,
                                 int64_t end, const DecodeSink& sink) {
  WideForm::visit_codes<kSpecial, kVectors>(lanes, words, first_word, begin, end, sink);
}

// to[(p - begin) * width + j] becomes code p of row j as a number, for the codes [begin, end) of kVectors registers of
// rows; those of rows that are not there have the code 0.
template <class Form, int kVectors, class Lanes>
void decode_lines(const CodeColumns& c, const Lanes& lanes, int64_t begin, int64_t end, float* to, int64_t width) {
  constexpr int64_t kLineCodes = kLineWords * Lanes::kPerWord;
  alignas(64) uint32_t words[kLineWords * kVectors * Form::kLanes];
  const DecodeSink sink{to - begin * width, width};
  for (int64_t p = begin; p < end;) {
    const int64_t line = p / kLineCodes, end_of_line = std::min(end, (line + 1) * kLineCodes);
    Form::template load_line<kVectors>(c, line, words);
    bool is_special = false;
    if constexpr (Lanes::kHasSpecial) is_special = lanes.may_be_special(Form(), words, std::ssize(words));
    if (is_special) decode_codes<true, kVectors>(Form(), lanes, words, line * kLineWords, p, end_of_line, sink);
    else decode_codes<false, kVectors>(Form(), lanes, words, line * kLineWords, p, end_of_line, sink);
    p = end_of_line;
  }
}

// A block of the right operand whose columns are the rows of codes; `c` and `lanes` are those of its first column on.
template <class Lanes>
void decode_block(const CodeColumns& c, const Lanes& lanes, const GemmDecodedBlock& block) {
  const int64_t end = block.first_k + block.length;
  const bool is_wide = has_wide_registers(cpu_target());
  for (int64_t first = 0, taken = 0; first < block.columns; first += taken) {
    const CodeColumns columns{c.first + first * c.stride, c.stride, block.columns - first, c.bytes, false};
    const auto decode = [&]<class Form>(Form) {
      decode_lines<Form, 1>(columns, lanes.from(first), block.first_k, end, block.to + first, block.width);
      taken = Form::kLanes;
    };
    if (is_wide && block.width - first >= WideForm::kLanes) decode(WideForm());
    else decode(NarrowForm());
  }
}

}  // namespace tutti::codegen::codes
