#include "tutti/codegen/codes/byte_dots.h"

#include <algorithm>

#include "tutti/codegen/gemm/lines_ahead.h"
#include "tutti/codegen/gemm/wide.h"

namespace tutti::codegen::codes {
namespace {

// Lane r of the result is the sum of the lanes of rows[r].
[[gnu::always_inline, TUTTI_DOTS]] inline __m128i sums_of_four(const __m512i (&rows)[4]) {
  const __m512i left =
      _mm512_add_epi32(_mm512_unpacklo_epi32(rows[0], rows[1]), _mm512_unpackhi_epi32(rows[0], rows[1]));
  const __m512i right =
      _mm512_add_epi32(_mm512_unpacklo_epi32(rows[2], rows[3]), _mm512_unpackhi_epi32(rows[2], rows[3]));
  const __m512i quarters = _mm512_add_epi32(_mm512_unpacklo_epi64(left, right), _mm512_unpackhi_epi64(left, right));
  const __m256i halves = _mm256_add_epi32(_mm512_castsi512_si256(quarters), _mm512_extracti64x4_epi64(quarters, 1));
  return _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
}

// The dots of kColumns columns with kX rows of x, and the sums of the columns.
template <int kColumns, int kX>
struct Dots {
  __m512i of_x[kX][kColumns], of_ones[kColumns];

  [[gnu::always_inline, TUTTI_DOTS]] void add(const __m512i (&codes)[kColumns], const uint8_t* x, int64_t stride) {
    for (int j = 0; j < kColumns; ++j) of_ones[j] = _mm512_dpbusd_epi32(of_ones[j], _mm512_set1_epi8(1), codes[j]);
    for (int i = 0; i < kX; ++i) {
      const __m512i bytes = _mm512_loadu_si512(x + i * stride);
      for (int j = 0; j < kColumns; ++j) of_x[i][j] = _mm512_dpbusd_epi32(of_x[i][j], bytes, codes[j]);
    }
  }
};

// The sums of columns first to first + kColumns of w. Lines are asked for every `passes`-th time.
template <int kColumns, int kX>
[[TUTTI_DOTS]] void dot_columns(const DotColumns& w, int64_t first, const uint8_t* x, int64_t stride, int32_t offset,
                                LinesAhead& lines, int64_t passes, int32_t* sums) {
  const uint8_t* columns[kColumns];
  for (int64_t j = 0; j < kColumns; ++j) columns[j] = w.first + std::min(first + j, w.columns - 1) * w.stride;
  Dots<kColumns, kX> dots;
  for (int j = 0; j < kColumns; ++j) {
    dots.of_ones[j] = _mm512_setzero_si512();
    for (int i = 0; i < kX; ++i) dots.of_x[i][j] = _mm512_setzero_si512();
  }
  __m512i codes[kColumns];
  int64_t p = 0, turn = passes;
  for (; p + 64 <= w.k; p += 64) {
    if (--turn == 0) lines.ask(kColumns), turn = passes;
    for (int j = 0; j < kColumns; ++j) codes[j] = _mm512_loadu_si512(columns[j] + p);
    dots.add(codes, x + p, stride);
  }
  if (p < w.k) {
    const __mmask64 is_there = (__mmask64{1} << (w.k - p)) - 1;
    for (int j = 0; j < kColumns; ++j) codes[j] = _mm512_maskz_loadu_epi8(is_there, columns[j] + p);
    dots.add(codes, x + p, stride);
  }
  // What bytes are too large by is the offset times the sum of the column.
  if constexpr (kColumns == 1) {
    const int32_t too_much = offset * _mm512_reduce_add_epi32(dots.of_ones[0]);
    for (int i = 0; i < kX; ++i) sums[i * kDotColumns + first] = _mm512_reduce_add_epi32(dots.of_x[i][0]) - too_much;
  } else {
    const __m128i too_much = _mm_mullo_epi32(_mm_set1_epi32(offset), sums_of_four(dots.of_ones));
    for (int i = 0; i < kX; ++i)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(sums + i * kDotColumns + first),
                       _mm_sub_epi32(sums_of_four(dots.of_x[i]), too_much));
  }
}

constexpr int64_t kMostRows = 4;  // of a pass

// One or two rows are faster than memory, which is fastest for one column after the other; more take several columns
// for each line of x.
template <int kX>
inline constexpr int kColumnsOf = kX <= 2 ? 1 : 4;

template <int kX = kMostRows>
void dot_rows(const DotColumns& w, const ByteRows& x, int64_t row, int64_t rows, LinesAhead& lines, int64_t passes,
              int32_t* sums) {
  if constexpr (kX > 1) {
    if (rows < kX) return dot_rows<kX - 1>(w, x, row, rows, lines, passes, sums);
  }
  for (int64_t first = 0; first < w.columns; first += kColumnsOf<kX>)
    dot_columns<kColumnsOf<kX>, kX>(w, first, x.bytes + row * x.stride, x.stride, x.offset, lines, passes,
                                    sums + row * kDotColumns);
}

}  // namespace

void dot_bytes(const DotColumns& w, const ByteRows& x, int32_t* sums) {
  constexpr int64_t kColumnsAhead = 4;
  const int64_t passes = (x.count + kMostRows - 1) / kMostRows;
  LinesAhead lines(w.first, x.count <= 2 ? kColumnsAhead : kDotColumns, kDotColumns, w.stride, w.k);
  for (int64_t pass = 0; pass < passes; ++pass) {
    const int64_t row = x.count * pass / passes;
    dot_rows(w, x, row, x.count * (pass + 1) / passes - row, lines, passes, sums);
  }
}

}  // namespace tutti::codegen::codes
