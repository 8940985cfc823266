// Depthwise convolutions, whose groups have one channel each. The products have so few rows and columns that the
// windows are read in place.
#pragma once

#include "tutti/ops/conv/conv_geometry.h"

namespace tutti::facets {

// Whether depthwise_forward() supports the convolution: f32, one channel per group, a kernel within one leaf of
// contractions, and planes that fit the second-level cache.
bool is_depthwise(const ConvGeometry& g, const Tensor& x, const Tensor& w, const Tensor& y);

// Computes y with the bits of conv_forward(): a chain of multiply-adds over the taps, with zeros outside x. All tensors
// are dense.
void depthwise_forward(const ConvGeometry& g, const Tensor& x, const Tensor& w, const Tensor& y);

}  // namespace tutti::facets
