#include "tutti/ops/conv_transpose.h"

#include "tutti/ops/channel_bias.h"
#include "tutti/ops/conv/conv_geometry.h"
#include "tutti/ops/convolution.h"
#include "tutti/ops/squeeze.h"

namespace tutti {
namespace {

Tensor transposed(const char* where, int dims, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const ConvTransposeOptions& o) {
  TUTTI_CHECK(weight.ndim() == dims + 2 && (x.ndim() == dims + 2 || x.ndim() == dims + 1),
              "{}: x is {}, weight {}; expected x [N, O, {} spatial dims] or without N, weight [O, C / groups, {} "
              "spatial dims]",
              where, describe(x), describe(weight), dims, dims);
  if (x.ndim() == dims + 1) return squeeze(transposed(where, dims, unsqueeze(x, 0), weight, bias, o), 0);
  TUTTI_CHECK(x.size(1) == weight.size(0), "{}: x has {} channels, the weight {} takes {}", where, x.size(1),
              describe(weight), weight.size(0));
  Dims sizes;
  for (int d = 0; d < dims; ++d) {
    const int64_t p = x.extent(d + 2), k = weight.extent(d + 2),
                  stride = facets::spatial_number(where, "stride", o.stride, d, dims);
    const int64_t padding = facets::spatial_number(where, "padding", o.padding, d, dims),
                  dilation = facets::spatial_number(where, "dilation", o.dilation, d, dims);
    const int64_t more = facets::spatial_number(where, "output_padding", o.output_padding, d, dims);
    TUTTI_CHECK(more >= 0 && more < stride,
                "{}: output_padding is {} along spatial dim {}; expected less than the stride, {}", where, more, d,
                stride);
    const int64_t size = (p - 1) * stride - 2 * padding + dilation * (k - 1) + more + 1;
    TUTTI_CHECK(p >= 1 && size >= 1,
                "{}: no output along spatial dim {}: its size would be (size - 1) * stride - 2 * padding + dilation * "
                "(kernel - 1) + "
                "output_padding + 1 = ({} - 1) * {} - 2 * {} + {} * ({} - 1) + {} + 1 = {}",
                where, d, p, stride, padding, dilation, k, more, size);
    sizes.push_back(size);
  }
  const Tensor y = convolution_input_gradient(
      x, weight, sizes, {.stride = o.stride, .padding = o.padding, .dilation = o.dilation, .groups = o.groups});
  return add_channel_bias(where, y, bias);
}

}  // namespace

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options) {
  return transposed("conv_transpose1d", 1, x, weight, bias, options);
}
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options) {
  return transposed("conv_transpose2d", 2, x, weight, bias, options);
}
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTransposeOptions& options) {
  return transposed("conv_transpose3d", 3, x, weight, bias, options);
}

}  // namespace tutti
