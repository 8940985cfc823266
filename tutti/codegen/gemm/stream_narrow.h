// The leaves of LeafLanes in registers of 256 bits, for every processor. Private to stream.cpp.
#pragma once

#include "tutti/codegen/gemm/stream_arithmetic.h"
#include "tutti/codegen/gemm/stream_leaves.h"

namespace tutti::codegen::stream {

template <class A>
class NarrowLeaves {
  using T = typename A::Sum;
  using S = typename A::Stored;
  using Block = typename A::Block;
  using Vector = typename A::Vector;
  static constexpr int64_t kLanes = Block::kSide;

 public:
  static constexpr int64_t kGroups = 2;

  // How far from a window lies what is asked for meanwhile.
  static constexpr int64_t kBytesAhead = 8 << 10;

  // sums[row][column group][leaf], rows `width` apart. x: [group of leaves][rows of packed x][kRows][lane].
  template <int kRows, class Window>
  TUTTI_OPAQUE_CALL static void chains(const Window& window, const T* x, T* sums, int64_t width) {
    constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(S));
    const int64_t length = window.length(), items = length / A::kPerItem, whole = items / kQuad * kQuad;
    for (int64_t group = 0; group < window.groups(); ++group) {
      const auto lanes = window.lanes(group);
      auto lines = window.lines(group);
      Vector sum[kGroups][kRows];
      for (auto& of_group : sum)
        for (Vector& v : of_group) v = Block::splat(T{-0.0});
      for (int64_t item = 0; item < whole;) {
        // A line of each lane is read before the next is asked for, so as many lines.
        for (int64_t g = 0; g < kGroups; ++g)
          for (int64_t i = 0; i < kLanes; ++i) lines.ask(g, i);
        lines.advance(kLanes);
        const int64_t end = std::min(item + kLine / A::kPerItem, whole);
#pragma GCC unroll 1
        for (; item < end; item += kQuad)
          for (int64_t g = 0; g < kGroups; ++g) add_quad<kRows>(lanes, g, x, item, 0, sum[g]);
      }
      for (int64_t g = 0; g < kGroups; ++g) {
        if (whole < items)  // items that reach back into what is done
          add_quad<kRows>(lanes, g, x, items - kQuad, kQuad - (items - whole), sum[g]);
        if constexpr (A::kPerItem == 2) {
          if (length % 2 != 0) add_alone<kRows>(lanes, g, length - 1, x + items * A::kXRows * kRows * kLanes, sum[g]);
        }
        for (int64_t r = 0; r < kRows; ++r)
          Block::store(sums + r * width + g * window.distance() + group * kLanes, sum[g][r]);
      }
      x += items_of(A::kKind, length) * kRows * kLanes;
    }
  }

 private:
  static constexpr int64_t kQuad = kLanes / 2;  // items that are transposed at a time

  // sum += items [begin, kQuad) of those at `item`.
  template <int kRows, class Lanes>
  [[gnu::always_inline]] static void add_quad(const Lanes& lanes, int64_t group, const T* x, int64_t item,
                                              int64_t begin, Vector (&sum)[kRows]) {
    const auto place = lanes.at(group, item * A::kPerItem);
    Vector block[kQuad];
    for (int64_t i = 0; i < kQuad; ++i)
      block[i] = Block::join(A::load_items(place[i]), A::load_items(place[i + kQuad]));
    Block::transpose_halves(block);
    for (int64_t i = begin; i < kQuad; ++i)
      for (int64_t r = 0; r < kRows; ++r)
        sum[r] = A::add_items(block[i], x + ((item + i) * A::kXRows * kRows + r) * kLanes, kRows * kLanes, sum[r]);
  }
  // sum += the last k of an odd leaf, which has no partner. x: its row.
  template <int kRows, class Lanes>
  [[gnu::always_inline]] static void add_alone(const Lanes& lanes, int64_t group, int64_t k, const T* x,
                                               Vector (&sum)[kRows]) {
    S last[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) last[i] = *lanes.at(group, k)[i];
    for (int64_t r = 0; r < kRows; ++r) sum[r] = A::add_alone(Block::load(last), Block::load(x + r * kLanes), sum[r]);
  }
};

}  // namespace tutti::codegen::stream
