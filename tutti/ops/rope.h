// Rotary position embedding.
#pragma once

#include <span>

#include "tutti/tensor/tensor.h"

namespace tutti {

struct RopeTable {
  Tensor cos, sin;  // f32 [positions, head_dim / 2]
};
// Cosines and sines of the angles position * theta^(-2i / head_dim) in radians, computed in f64 and rounded to f32.
RopeTable rope_table(int64_t positions, int64_t head_dim, double theta);
// The same of the angles position * frequencies[i], times `factor`. UsageError when `positions` is negative.
RopeTable rope_table(int64_t positions, std::span<const double> frequencies, double factor = 1);

// Rotates the pair (x[i], x[i + H/2]) by the i-th angle of its token. Computed in f32, rounded once.
// Shapes: x [T, heads, H] with even H; cos, sin [T, H/2], one row per token. Source: Su et al. 2021, eq. 34, with the
// pairs (i, i + H/2) that the released Qwen and LLaMA weights use.
Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin);

}  // namespace tutti
