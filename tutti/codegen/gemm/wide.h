// Functions with registers of 512 bits in files that are compiled for processors without them. They are called only
// where has_wide_registers(cpu_target()); what is to be inlined into them, a lambda too, needs the attribute itself.
#pragma once

#include <immintrin.h>

#define TUTTI_WIDE gnu::target("avx512f,avx512bw,avx512vl,avx512dq")
// The same with dot products of integers, called only from CpuTarget::avx512vnni on.
#define TUTTI_DOTS gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")

// GCC's own intrinsics leave what a mask of ones overwrites without a value.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace tutti::codegen::simd {

// Word w of row r becomes word r of register w: pairs, then quadruples, then quarters of registers.
[[gnu::always_inline, TUTTI_WIDE]] inline void transpose_words(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  // Register i + w: word w of each quarter of rows i to i + 3.
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int w = 0; w < 4; ++w) {
    const __m512i a = _mm512_shuffle_i32x4(r[w], r[4 + w], 0x88), b = _mm512_shuffle_i32x4(r[w], r[4 + w], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(r[8 + w], r[12 + w], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(r[8 + w], r[12 + w], 0xdd);
    t[w] = _mm512_shuffle_i32x4(a, c, 0x88), t[8 + w] = _mm512_shuffle_i32x4(a, c, 0xdd);
    t[4 + w] = _mm512_shuffle_i32x4(b, d, 0x88), t[12 + w] = _mm512_shuffle_i32x4(b, d, 0xdd);
  }
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

}  // namespace tutti::codegen::simd
