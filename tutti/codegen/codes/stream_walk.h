// The streams of code_streams.h and the order in which their blocks are taken. Private to the products of codes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tutti/codegen/codes/code_lanes.h"
#include "tutti/codegen/codes/wide_lanes.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/codegen/gemm/wide.h"

namespace tutti::codegen::codes {

// Streams for kX rows of x: the sums of more do not stay in registers.
template <int kX>
inline constexpr int kStreams = kX <= 4 ? 4 : 2;

// Bytes of a part of a row.
inline constexpr int64_t kLeastPart = 512;

// Leaves of 16 rows of codes.
struct Stream {
  const uint8_t* first;    // the byte of row 0 that they begin in
  const int64_t* offsets;  // of the rows from that
  const float* x;          // what the codes from that byte on are multiplied by, [codes][kX]
  int64_t bytes;           // from there to the end of the row
  int64_t word;            // the number of its word in the row
  int64_t group;           // of 16 rows
  int64_t begin, end;      // of the codes, counted from that byte
  int64_t leaf;            // the first one
};

// Walks over the blocks of streams that run side by side, then over those of the next rows.
template <int kX, class Lanes>
class StreamWalk {
 public:
  static constexpr int kCount = kStreams<kX>;
  static constexpr int64_t kBlockCodes = kLineWords * Lanes::kPerWord;
  Stream streams[kCount];
  int64_t at = 0;  // their codes before the block

  StreamWalk(const CodeColumns& c, const float* x, const ContractionTree& tree)
      : c_(c), groups_((c.columns + kWideLanes - 1) / kWideLanes) {
    // The last row stands for those that are not there.
    const int64_t last = c.columns - (groups_ - 1) * kWideLanes - 1;
    for (int64_t j = 0; j < kWideLanes; ++j)
      offsets_[0][j] = j * c.stride, offsets_[1][j] = std::min(j, last) * c.stride;
    // Short rows are read whole, so that blocks are full; a part of a row takes several of them.
    const int64_t leaves = std::ssize(tree.leaf_lengths);
    int64_t parts = 1;
    while (parts < kCount && 2 * parts <= leaves && (2 * parts * kLeastPart <= c.bytes || kCount / parts > groups_))
      parts *= 2;
    groups_at_once_ = kCount / parts;
    for (int64_t i = 0, k = 0, leaf = 0; i < kCount; ++i) {
      const int64_t part = i % parts, end_of_part = leaves * (part + 1) / parts;
      if (part == 0) k = leaf = 0;
      const int64_t first = k / Lanes::kAlign * Lanes::kAlign, nbytes = first * 4 / Lanes::kPerWord;
      parts_[i] = {.first = c.first + i / parts * kWideLanes * c.stride + nbytes,
                   .offsets = nullptr,
                   .x = x + first * kX,
                   .bytes = c.bytes - nbytes,
                   .word = first / Lanes::kPerWord,
                   .group = i / parts,
                   .begin = k - first,
                   .end = 0,
                   .leaf = leaf};
      for (; leaf < end_of_part; ++leaf) k += tree.leaf_lengths[static_cast<size_t>(leaf)];
      parts_[i].end = k - first;
      longest_ = std::max(longest_, parts_[i].end);
    }
    begin_streams();
  }
  // To the next block; false where there is none.
  bool next() {
    at += kBlockCodes;
    return at < longest_ || begin_streams();
  }
  bool is_first() const { return at == 0; }
  int64_t groups_at_once() const { return groups_at_once_; }

 private:
  bool begin_streams() {
    if (group_ >= groups_) return false;
    at = 0;
    for (int i = 0; i < kCount; ++i) {
      Stream& s = streams[i] = parts_[i];
      s.group += group_;
      s.offsets = offsets_[s.group + 1 >= groups_];
      if (s.group < groups_) s.first += group_ * kWideLanes * c_.stride;
      else s.first = c_.first, s.end = s.begin;  // without codes, where rows are missing
    }
    group_ += groups_at_once_;
    return true;
  }

  const CodeColumns& c_;
  const int64_t groups_;
  int64_t groups_at_once_ = 0, longest_ = 0, group_ = 0;
  int64_t offsets_[2][kWideLanes];
  Stream parts_[kCount];  // of the first groups
};

// Word w of row j of a block that begins at byte `nbytes` of a stream becomes words[w * 16 + j]; 0 behind the rows.
[[gnu::always_inline, TUTTI_WIDE]] inline void transpose_block(const Stream& s, int64_t nbytes, uint32_t* words) {
  __m512i r[kWideLanes];
  const uint8_t* first = s.first + nbytes;
  const int64_t left = s.bytes - nbytes;
  if (left >= kLineBytes) {
    for (int64_t j = 0; j < kWideLanes; ++j) r[j] = _mm512_loadu_si512(first + s.offsets[j]);
  } else {
    const __mmask64 is_there = left > 0 ? (__mmask64{1} << left) - 1 : 0;
    for (int64_t j = 0; j < kWideLanes; ++j) r[j] = _mm512_maskz_loadu_epi8(is_there, first + s.offsets[j]);
  }
  simd::transpose_words(r);
  for (int64_t w = 0; w < kLineWords; ++w) _mm512_store_si512(words + w * kWideLanes, r[w]);
}

// A call of its own: what is transposed before anything is multiplied needs no place in each kernel.
[[gnu::noinline, TUTTI_WIDE]] inline void transpose_first_block(const Stream& s, uint32_t* words) {
  transpose_block(s, 0, words);
}

}  // namespace tutti::codegen::codes
