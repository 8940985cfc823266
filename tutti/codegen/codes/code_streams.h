// What few_rows.h does, in registers of 512 bits, at about the rate at which memory hands out the codes.
//
// A stream is a part of 16 rows of codes: one lane each, with a chain of multiply-adds for each row of x, leaf after
// leaf. As many streams as hide the latency of a multiply-add run side by side, parts of the same rows where there are
// leaves enough. The next rows are asked for meanwhile, in the order of memory: in that order a processor fetches
// further lines by itself, while rows that are read side by side, a page apart, come at half the rate at best.
//
// A block is a line of 64 bytes of the rows of each stream. It is transposed while the one before it is multiplied,
// which leaves units idle that can do so. Private to the products of codes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "tutti/codegen/codes/few_rows.h"
#include "tutti/codegen/codes/stream_walk.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/codegen/gemm/lines_ahead.h"
#include "tutti/codegen/gemm/wide.h"
#include "tutti/codegen/gemm/workspace.h"

namespace tutti::codegen::codes {

// The chains of streams, in registers, and the leaves that they have made, in memory [groups][leaves][kX][16].
template <int kX, class Lanes>
class StreamChains {
 public:
  using Walk = StreamWalk<kX, Lanes>;
  static constexpr int kCount = kStreams<kX>;
  static constexpr int64_t kPerWord = Lanes::kPerWord;
  using Words = uint32_t[kCount][kLineWords * kWideLanes];

  [[TUTTI_WIDE]] StreamChains(const Lanes& lanes, const ContractionTree& tree, float* leaves)
      : lanes_(lanes), tree_(tree), leaves_(leaves) {}

  [[gnu::always_inline, TUTTI_WIDE]] void begin(const Walk& walk) {
    position_ = 0;
    for (int s = 0; s < kCount; ++s) {
      const Stream& of = walk.streams[s];
      leaf_[s] = of.leaf;
      ends_[s] = of.begin == of.end ? kNever : of.begin + length_of(of.leaf);
      for (int r = 0; r < kX; ++r) chains_[s][r] = _mm512_set1_ps(-0.0F);
    }
  }

  // Adds the words of a block up to word number `last`. Lines are asked for as words are added: many at once would be
  // dropped.
  [[gnu::always_inline, TUTTI_WIDE]] void add_words(const Walk& walk, const Words& words, int64_t last,
                                                    LinesAhead& lines) {
    const int64_t first = walk.at / kPerWord;
    while (position_ < first + last) {
      // Up to here words are whole in all streams.
      int64_t end = first + last;
      for (int s = 0; s < kCount; ++s) {
        const bool is_inside = position_ * kPerWord >= walk.streams[s].begin && ends_[s] != kNever;
        end = std::min(end, is_inside ? ends_[s] / kPerWord : position_);
      }
      if (end == position_) {
        lines.ask(kCount);
#pragma GCC unroll 4
        for (int s = 0; s < kCount; ++s) add_parts(s, walk.streams[s], words[s] + (position_ - first) * kWideLanes);
        ++position_;
        continue;
      }
      for (int64_t word = position_; word < end; ++word) {
        lines.ask(kCount);
#pragma GCC unroll 4
        for (int s = 0; s < kCount; ++s)
          add_word<false>(s, walk.streams[s], words[s] + (word - first) * kWideLanes, word, 0, kPerWord);
      }
      position_ = end;
#pragma GCC unroll 4
      for (int s = 0; s < kCount; ++s)
        if (ends_[s] == end * kPerWord) end_leaf(s, walk.streams[s]);
    }
  }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  int64_t length_of(int64_t leaf) const { return tree_.leaf_lengths[static_cast<size_t>(leaf)]; }

  // Codes begin to end of a word.
  template <bool kPart>
  [[gnu::always_inline, TUTTI_WIDE]] void add_word(int s, const Stream& of, const uint32_t* word, int64_t number,
                                                   int64_t begin, int64_t end) {
    __m512i of_rows = _mm512_load_si512(word);
    asm("" : "+v"(of_rows));  // else GCC loads it again for each code
    __m512 numbers[kPerWord];
    lanes_.numbers(of_rows, lanes_.place(of.word + number, of.group), numbers);
    for (int i = 0; i < kPerWord; ++i) {
      const bool is_in = !kPart || (i >= begin && i < end);
      const float* x = of.x + (is_in ? number * kPerWord + i : 0) * kX;  // rows of x end where codes do
      for (int r = 0; r < kX; ++r) {
        const __m512 of_x = _mm512_set1_ps(x[r]);
        if constexpr (kPart)
          chains_[s][r] =
              _mm512_mask3_fmadd_ps(of_x, numbers[i], chains_[s][r], static_cast<__mmask16>(is_in ? 0xffff : 0));
        else chains_[s][r] = _mm512_fmadd_ps(of_x, numbers[i], chains_[s][r]);
      }
    }
  }
  // A word that several leaves have part of, or none.
  [[gnu::always_inline, TUTTI_WIDE]] void add_parts(int s, const Stream& of, const uint32_t* word) {
    const int64_t first = position_ * kPerWord;
    for (int64_t begin = std::max<int64_t>(0, of.begin - first); begin < kPerWord && ends_[s] != kNever;) {
      const int64_t end = std::min(kPerWord, ends_[s] - first);
      add_word<true>(s, of, word, position_, begin, end);
      if (ends_[s] == first + end) end_leaf(s, of);
      begin = end;
    }
  }
  [[gnu::always_inline, TUTTI_WIDE]] void end_leaf(int s, const Stream& of) {
    const int64_t slot = of.group * std::ssize(tree_.leaf_lengths) + leaf_[s];
    for (int r = 0; r < kX; ++r) {
      _mm512_storeu_ps(leaves_ + (slot * kX + r) * kWideLanes, chains_[s][r]);
      chains_[s][r] = _mm512_set1_ps(-0.0F);
    }
    ends_[s] = ends_[s] == of.end ? kNever : ends_[s] + length_of(++leaf_[s]);
  }

  const Lanes& lanes_;
  const ContractionTree& tree_;
  float* const leaves_;
  __m512 chains_[kCount][kX];
  int64_t ends_[kCount], leaf_[kCount];  // of the leaves that are being added
  int64_t position_ = 0;                 // the word of the streams that comes next
};

// totals[r * stride + j] of one group of rows: its leaves in the order of the tree.
template <int kX>
[[TUTTI_WIDE]] void add_leaves(const ContractionTree& tree, const float* leaves, float* totals, int64_t stride) {
  __m512 pending[kMostPending][kX];
  int64_t top = 0;
  for (const uint8_t count : tree.merges) {
    __m512 sums[kX];
    for (int r = 0; r < kX; ++r, leaves += kWideLanes) sums[r] = _mm512_loadu_ps(leaves);
    for (int merges = count; merges > 0; --merges) {
      --top;
      for (int r = 0; r < kX; ++r) sums[r] = _mm512_add_ps(pending[top][r], sums[r]);
    }
    for (int r = 0; r < kX; ++r) pending[top][r] = sums[r];
    ++top;
  }
  for (int r = 0; r < kX; ++r) _mm512_storeu_ps(totals + r * stride, pending[0][r]);
}

// totals[r * stride + j]: the total of row r of x [k][kX] with row j of the codes.
template <int kX, class Lanes>
[[TUTTI_WIDE]] void multiply_streams(const CodeColumns& c, const Lanes& lanes, const float* x,
                                     const ContractionTree& tree, float* totals, int64_t stride) {
  constexpr int kCount = kStreams<kX>;
  alignas(64) uint32_t words[2][kCount][kLineWords * kWideLanes];
  const int64_t groups = (c.columns + kWideLanes - 1) / kWideLanes,
                leaves_of_group = std::ssize(tree.leaf_lengths) * kX * kWideLanes;
  auto* const leaves = reinterpret_cast<float*>(gemm_workspaces().stack.reserve(groups * leaves_of_group * 4));
  StreamWalk<kX, Lanes> walk(c, x, tree), ahead = walk;
  StreamChains<kX, Lanes> chains(lanes, tree, leaves);
  LinesAhead lines(c.first, kWideLanes * walk.groups_at_once(), c.columns, c.stride, c.bytes);
  for (int s = 0; s < kCount; ++s) transpose_first_block(ahead.streams[s], words[0][s]);
  for (int now = 0;; now = 1 - now) {
    const bool has_next = ahead.next();
    if (walk.is_first()) chains.begin(walk);
    for (int part = 0; part < kCount; ++part) {
      chains.add_words(walk, words[now], (part + 1) * kLineWords / kCount, lines);
      if (has_next) transpose_block(ahead.streams[part], ahead.at * 4 / Lanes::kPerWord, words[1 - now][part]);
    }
    if (!has_next) break;
    walk.next();
  }
  for (int64_t group = 0; group < groups; ++group)
    add_leaves<kX>(tree, leaves + group * leaves_of_group, totals + group * kWideLanes, stride);
}

}  // namespace tutti::codegen::codes
