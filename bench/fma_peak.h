// The fused multiply-add rate of one thread: what a GEMM is measured against, on this machine, now.
#pragma once

namespace tutti::bench {

// f32 GFLOP/s of independent multiply-adds in the widest registers this machine has; the best of a few runs of about a
// millisecond.
double fma_peak_gflops();

}  // namespace tutti::bench
