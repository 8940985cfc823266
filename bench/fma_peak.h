// The multiply-add rate of one thread: what a GEMM is measured against, on this machine, now.
#pragma once

namespace tutti::bench {

// f32 GFLOP/s of independent multiply-adds in the widest registers this machine has; the best of a few runs of about a
// millisecond.
double fma_peak_gflops();

// The same of what products of two bf16 operands are computed with: dot products of bf16 where kernels may use them
// (TUTTI_CPU), f32 multiply-adds elsewhere.
double bf16_peak_gflops();

// Billions of operations per second of products of 8-bit integers that are added in 16 bits, as quantized blocks are
// multiplied (VPMADDUBSW and VPADDW of AVX2): two for a multiply-add.
double int8_peak_gops();

// The same of exact products of 8-bit integers, as int_mm computes them: dot units (VPDPBUSD) where kernels may use
// them (TUTTI_CPU), VPMADDWD and VPADDD elsewhere.
double int_mm_peak_gops();

}  // namespace tutti::bench
