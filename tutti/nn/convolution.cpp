#include "tutti/nn/convolution.h"

#include <cmath>

namespace tutti::nn {

Conv::Conv(int dims, int64_t channels, int64_t outputs, const Dims& kernel, const ConvOptions& options, bool with_bias)
    : options_(options) {
  const int64_t groups = options.groups;
  TUTTI_CHECK(
      groups >= 1 && channels >= 1 && outputs >= 1 && channels % groups == 0 && outputs % groups == 0,
      "Conv{}d: {} channels to {} outputs in {} groups; expected 1 or more of each, and groups that divide both", dims,
      channels, outputs, groups);
  TUTTI_CHECK(kernel.ndim() == 1 || kernel.ndim() == dims, "Conv{}d: the kernel has {} sizes; expected 1 or {}", dims,
              kernel.ndim(), dims);
  Extents sizes = {outputs, channels / groups};
  int64_t fan_in = channels / groups;
  for (int d = 0; d < dims; ++d) {
    const int64_t k = kernel[kernel.ndim() == 1 ? 0 : static_cast<size_t>(d)];
    TUTTI_CHECK(k >= 1, "Conv{}d: kernel size {} along spatial dim {}; expected 1 or more", dims, k, d);
    sizes.push_back(k);
    fan_in *= k;
  }
  weight = register_parameter("weight", sizes, Init::normal(1.0 / std::sqrt(3.0 * static_cast<double>(fan_in))));
  if (with_bias) bias = register_parameter("bias", {outputs}, Init::zeros());
}

}  // namespace tutti::nn
