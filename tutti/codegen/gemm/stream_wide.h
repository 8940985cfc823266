// The leaves of LeafLanes in registers of 512 bits, for f32 sums. Private to stream.cpp.
#pragma once

#include "tutti/codegen/gemm/stream_arithmetic.h"
#include "tutti/codegen/gemm/stream_leaves.h"
#include "tutti/codegen/gemm/wide.h"

namespace tutti::codegen::stream {

template <class A>
class WideLeaves {
  using S = typename A::Stored;
  static constexpr int64_t kLanes = 8;  // of a group; a register holds two groups
  static constexpr int64_t kItems = 8;  // that are transposed at a time
  static constexpr int64_t kPairs = A::kPerItem == 2;

 public:
  static constexpr int64_t kGroups = 4;
  // How far from a window lies what is asked for meanwhile.
  static constexpr int64_t kBytesAhead = 16 << 10;

  // sums[row][column group][leaf], rows `width` apart. x: [group of leaves][rows of packed x][kRows][lane].
  template <int kRows, class Window>
  [[TUTTI_WIDE]] TUTTI_OPAQUE_CALL static void chains(const Window& window, const float* x, float* sums,
                                                      int64_t width) {
    const int64_t length = window.length(), items = length / A::kPerItem, distance = window.distance();
    for (int64_t group = 0; group < window.groups(); ++group) {
      const auto lanes = window.lanes(group);
      auto lines = window.lines(group);
      __m512 sum[kRegisters][kRows];
      for (auto& of_register : sum)
        for (__m512& v : of_register) v = _mm512_set1_ps(-0.0f);
      int64_t item = 0;
      for (; item + kItems <= items; item += kItems) add_items<kRows>(lanes, x, item, 0, lines, sum);
      if (item < items)  // items that reach back into what is done; a line may be asked for twice
        add_items<kRows>(lanes, x, items - kItems, kItems - (items - item), lines, sum);
      if constexpr (kPairs) {
        if (length % 2 != 0) add_alone<kRows>(lanes, length - 1, x + items * A::kXRows * kRows * kLanes, sum);
      }
      for (int64_t v = 0; v < kRegisters; ++v)
        for (int64_t r = 0; r < kRows; ++r) {
          float* to = sums + r * width + 2 * v * distance + group * kLanes;
          _mm256_storeu_ps(to, _mm512_castps512_ps256(sum[v][r]));
          _mm256_storeu_ps(to + distance, _mm512_extractf32x8_ps(sum[v][r], 1));
        }
      x += items_of(A::kKind, length) * kRows * kLanes;
    }
  }

 private:
  static constexpr int64_t kRegisters = kGroups / 2;

  // sum += items [begin, kItems) of those at `item`, in all groups side by side: they share x, and a chain alone waits
  // for itself.
  template <int kRows, class Lanes>
  [[gnu::always_inline, TUTTI_WIDE]] static void add_items(const Lanes& lanes, const float* x, int64_t item,
                                                           int64_t begin, LinesOfGroups<S>& lines,
                                                           __m512 (&sum)[kRegisters][kRows]) {
    // As many lines as are read.
    constexpr int64_t kLines = kLanes * kItems * A::kPerItem * static_cast<int64_t>(sizeof(S)) / 64;
    __m512 block[kRegisters][kItems];
    for (int64_t g = 0; g < kGroups; ++g) {
      const auto place = lanes.at(g, item * A::kPerItem);
      for (int64_t i = 0; i < kItems / 2; ++i) {
        const __m512 low = _mm512_castps256_ps512(load_items(place[i]));
        block[g / 2][g % 2 * 4 + i] = _mm512_mask_broadcast_f32x8(low, 0xff00, load_items(place[i + 4]));
        if (i < kLines) lines.ask(g, i);
      }
    }
    lines.advance(kLines);
    for (auto& of_register : block) turn(of_register);
    for (int64_t i = begin; i < kItems; ++i)
      for (int64_t r = 0; r < kRows; ++r) {
        const float* at = x + ((item + i) * A::kXRows * kRows + r) * kLanes;
        for (int64_t v = 0; v < kRegisters; ++v) sum[v][r] = add(block[v][i], at, kRows * kLanes, sum[v][r]);
      }
  }
  // sum += the last k of an odd leaf, which has no partner. x: its row.
  template <int kRows, class Lanes>
  [[gnu::always_inline, TUTTI_WIDE]] static void add_alone(const Lanes& lanes, int64_t k, const float* x,
                                                           __m512 (&sum)[kRegisters][kRows]) {
    for (int64_t v = 0; v < kRegisters; ++v) {
      S last[2 * kLanes];
      for (int64_t i = 0; i < 2 * kLanes; ++i) last[i] = *lanes.at(2 * v + i / kLanes, k)[i % kLanes];
      const __m512i even = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(last)));
      for (int64_t r = 0; r < kRows; ++r) {
        const __m512 of_x = for_both(x + r * kLanes);
        if constexpr (A::kKind == TileKind::bf16_pairs) sum[v][r] = dot(_mm512_castsi512_ps(even), of_x, sum[v][r]);
        else sum[v][r] = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(even, 16)), of_x, sum[v][r]);
      }
    }
  }

  // x of the lanes, for both groups of a register.
  [[gnu::always_inline, TUTTI_WIDE]] static __m512 for_both(const float* x) {
    return _mm512_broadcast_f32x8(_mm256_loadu_ps(x));
  }
  // Neighbouring items of a row: numbers, or pairs as they are stored.
  [[gnu::always_inline, TUTTI_WIDE]] static __m256 load_items(const S* p) {
    if constexpr (kPairs) return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
    else return A::Block::load(p);
  }

  // Halves of register i are the items of lanes i % 4 and i % 4 + 4 of a group, the second from the fifth register on.
  // They become item i of all lanes.
  [[gnu::always_inline, TUTTI_WIDE]] static void turn(__m512 (&r)[kItems]) {
    __m512 t[kItems];
    for (int i = 0; i < kItems; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < kItems; i += 4) {
      r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
      r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    // Quarters of r[i]: items i and i + 4 of the first four lanes, then of the others; r[i + 4]: of the second group.
    for (int i = 0; i < 4; ++i) {
      const __m512 first = r[i], last = r[i + 4];
      r[i] = _mm512_shuffle_f32x4(first, last, 0x88);
      r[i + 4] = _mm512_shuffle_f32x4(first, last, 0xdd);
    }
  }

  [[gnu::always_inline, TUTTI_WIDE]] static __m512 add(__m512 items, const float* x, int64_t x_stride, __m512 sum) {
    if constexpr (A::kKind == TileKind::bf16_pairs) return dot(items, for_both(x), sum);
    if constexpr (A::kKind == TileKind::bf16_chain) {
      const __m512i pairs = _mm512_castps_si512(items);
      const __m512i odd = _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u)));
      sum = _mm512_fmadd_ps(_mm512_castsi512_ps(odd), for_both(x), sum);
      return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), for_both(x + x_stride), sum);
    }
    return _mm512_fmadd_ps(items, for_both(x), sum);
  }

  // Not an intrinsic: only this instruction, in code for all wide registers, is for processors with dot units.
  [[gnu::always_inline, TUTTI_WIDE]] static __m512 dot(__m512 a, __m512 b, __m512 sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }
};

}  // namespace tutti::codegen::stream
