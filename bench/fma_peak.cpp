#include "bench/fma_peak.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/int8.h"

namespace tutti::bench {
namespace {

constexpr int kChains = 12;  // latency 4 or 5 times two units, and some
constexpr int kTurns = 100'000;

// The empty statements keep the compiler from computing chains ahead of time or merging them.
__attribute__((target("avx512f"))) void run_avx512() {
  __m512 chain[kChains];
  for (__m512& c : chain) c = _mm512_setzero_ps();
  __m512 x = _mm512_setzero_ps();
  asm volatile("" : "+v"(x));
  for (int turn = 0; turn < kTurns; ++turn) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) chain[i] = _mm512_fmadd_ps(x, x, chain[i]);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) asm volatile("" ::"v"(chain[i]));
}

__attribute__((target("avx2,fma"))) void run_avx2() {
  __m256 chain[kChains];
  for (__m256& c : chain) c = _mm256_setzero_ps();
  __m256 x = _mm256_setzero_ps();
  asm volatile("" : "+x"(x));
  for (int turn = 0; turn < kTurns; ++turn) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) chain[i] = _mm256_fmadd_ps(x, x, chain[i]);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) asm volatile("" ::"x"(chain[i]));
}

__attribute__((target("avx512f,avx512bf16"))) void run_bf16() {
  __m512 chain[kChains];
  for (__m512& c : chain) c = _mm512_setzero_ps();
  __m512i x = _mm512_setzero_si512();
  asm volatile("" : "+v"(x));
  const __m512bh pairs = (__m512bh)x;
  for (int turn = 0; turn < kTurns; ++turn) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) chain[i] = _mm512_dpbf16_ps(chain[i], pairs, pairs);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) asm volatile("" ::"v"(chain[i]));
}

__attribute__((target("avx2"))) void run_int8() {
  __m256i chain[kChains];
  for (__m256i& c : chain) c = _mm256_setzero_si256();
  __m256i x = _mm256_setzero_si256();
  for (int turn = 0; turn < kTurns; ++turn) {
    asm volatile("" : "+x"(x));  // else the products would be made once
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      __m256i product = _mm256_maddubs_epi16(x, x);
      asm volatile("" : "+x"(product));
      chain[i] = _mm256_add_epi16(chain[i], product);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) asm volatile("" ::"x"(chain[i]));
}

__attribute__((target("avx2"))) void run_int8_pairs() {
  __m256i chain[kChains];
  for (__m256i& c : chain) c = _mm256_setzero_si256();
  __m256i x = _mm256_setzero_si256();
  for (int turn = 0; turn < kTurns; ++turn) {
    asm volatile("" : "+x"(x));
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      __m256i product = _mm256_madd_epi16(x, x);
      asm volatile("" : "+x"(product));
      chain[i] = _mm256_add_epi32(chain[i], product);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) asm volatile("" ::"x"(chain[i]));
}

__attribute__((target("avx512f,avx512vnni"))) void run_int8_quads() {
  __m512i chain[kChains];
  for (__m512i& c : chain) c = _mm512_setzero_si512();
  __m512i x = _mm512_setzero_si512();
  asm volatile("" : "+v"(x));
  for (int turn = 0; turn < kTurns; ++turn) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) chain[i] = _mm512_dpbusd_epi32(chain[i], x, x);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) asm volatile("" ::"v"(chain[i]));
}

// GFLOP/s of a loop whose instructions have so many multiply-adds.
double best_rate(void (*loop)(), int multiply_adds) {
  double best = std::numeric_limits<double>::infinity();
  for (int repeat = 0; repeat < 9; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    loop();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 2.0 * multiply_adds * kChains * kTurns / best * 1e-9;
}

}  // namespace

double fma_peak_gflops() {
  return __builtin_cpu_supports("avx512f") ? best_rate(run_avx512, 16) : best_rate(run_avx2, 8);
}

double bf16_peak_gflops() {
  return codegen::cpu_target() == codegen::CpuTarget::avx512bf16 ? best_rate(run_bf16, 32) : fma_peak_gflops();
}

double int8_peak_gops() { return best_rate(run_int8, 32); }

double int_mm_peak_gops() {
  const bool has_quads = codegen::int8_items(codegen::cpu_target()) == codegen::Int8Items::quads;
  return has_quads ? best_rate(run_int8_quads, 64) : best_rate(run_int8_pairs, 16);
}

}  // namespace tutti::bench
