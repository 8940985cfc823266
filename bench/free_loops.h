// Plain loops that promise no order of their sums: what `tutti bench strict` holds the ops against.
//
// f32, elements are neighbours, each as fast as the instruction set lets it be: as many partial sums as hide the
// latency of an add, one pass less where an order would need it, multiply-adds wherever they fit. One thread; callers
// share out rows.
#pragma once

#include <cstdint>

namespace tutti::bench {

struct FreeLoops {
  float (*sum)(const float* x, int64_t n);
  float (*dot)(const float* x, const float* y, int64_t n);
  void (*add)(float* y, const float* x, int64_t n);  // y += x
  void (*scale)(float* y, float by, int64_t n);
  float (*exp_row)(const float* x, float scale, int64_t n, float* y);  // y = exp(scale (x - max x)); their sum
  float (*logsumexp)(const float* x, int64_t n);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int64_t n, float* y);
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* y);
};

// The loops for the instruction set that Tutti's kernels use on this machine.
const FreeLoops& free_loops();

}  // namespace tutti::bench
