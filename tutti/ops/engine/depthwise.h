// Convolutions whose groups have one channel each: a product of so few rows and columns that the windows are read where they lie.
#pragma once

#include "tutti/ops/engine/conv_geometry.h"

namespace tutti::facets {

// Whether depthwise_forward() computes it: f32, one channel a group, a kernel within one leaf of contractions, planes that stay
// in the second-level cache.
bool is_depthwise(const ConvGeometry& g, const Tensor& x, const Tensor& w, const Tensor& y);

// y as conv_forward() gives it, bit by bit: a chain of multiply-adds over the taps, zeros outside of x. All tensors dense.
void depthwise_forward(const ConvGeometry& g, const Tensor& x, const Tensor& w, const Tensor& y);

}  // namespace tutti::facets
