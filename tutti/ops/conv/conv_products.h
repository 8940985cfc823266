// The three products of a convolution, on the tree GEMM of codegen: sums as tutti/ops/convolution.h says.
//
// x [N, C, S...], w [O, C / groups, K...], y [N, O, P...]; results are dense, operands of any strides.
#pragma once

#include "tutti/ops/conv/conv_geometry.h"

namespace tutti::facets {

void conv_forward(const ConvGeometry& g, const Tensor& x, const Tensor& w, const Tensor& y);
void conv_input_gradient(const ConvGeometry& g, const Tensor& grad, const Tensor& w, const Tensor& dx);
void conv_weight_gradient(const ConvGeometry& g, const Tensor& grad, const Tensor& x, const Tensor& dw);

}  // namespace tutti::facets
