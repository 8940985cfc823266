// Convolutions of each channel alone have the bits of the chain of multiply-adds that a product of one leaf is.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/ops/convolution.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti {
namespace {

struct Problem {
  Extents size, kernel;  // of three dims
  ConvOptions options;
  int64_t features;  // of a group
};

// Taps in row-major order from -0.0; outside of x stands +0.0.
float chain(const float* x, const float* w, const Problem& p, const Extents& output) {
  float sum = -0.0f;
  for (int64_t k = 0; k < p.kernel[0] * p.kernel[1] * p.kernel[2]; ++k) {
    const Extents tap = {k / p.kernel[2] / p.kernel[1], k / p.kernel[2] % p.kernel[1], k % p.kernel[2]};
    int64_t at = 0;
    bool inside = true;
    for (size_t d = 0; d < 3; ++d) {
      const int64_t i = output[d] * p.options.stride[d] - p.options.padding[d] + tap[d] * p.options.dilation[d];
      inside = inside && i >= 0 && i < p.size[d];
      at = at * p.size[d] + i;
    }
    sum = std::fma(w[k], inside ? x[at] : 0.0f, sum);
  }
  return sum;
}

Tensor convolve(const Problem& p, const Tensor& x, const Tensor& w) { return conv3d(x, w, {}, p.options); }

TEST(Depthwise, HasTheBitsOfOneChain) {
  const Problem problems[] = {
      {{1, 9, 35}, {1, 3, 3}, {.stride = {1, 1, 1}, .padding = {0, 1, 1}, .dilation = {1, 1, 1}, .groups = 3}, 1},
      {{1, 12, 70}, {1, 5, 5}, {.stride = {1, 2, 2}, .padding = {0, 2, 2}, .dilation = {1, 1, 1}, .groups = 3}, 2},
      {{1, 7, 101}, {1, 2, 3}, {.stride = {1, 3, 3}, .padding = {0, 0, 4}, .dilation = {1, 1, 2}, .groups = 3}, 1},
      {{4, 5, 6}, {2, 3, 2}, {.stride = {2, 1, 1}, .padding = {1, 1, 0}, .dilation = {1, 2, 3}, .groups = 3}, 3},
      {{1, 1, 1}, {1, 1, 1}, {.stride = {1, 1, 1}, .padding = {0, 0, 0}, .dilation = {1, 1, 1}, .groups = 3}, 1},
  };
  for (const Problem& p : problems) {
    const Tensor x = facets::sample_tensor(1, {2, 3, p.size[0], p.size[1], p.size[2]});
    const Tensor w = facets::sample_tensor(2, {3 * p.features, 1, p.kernel[0], p.kernel[1], p.kernel[2]});
    x.data<float>()[0] = -0.0f;
    const Tensor y = convolve(p, x, w);
    const Extents sizes = y.extents();
    int64_t at = 0;
    facets::for_each_index(sizes, [&](const Extents& o) {
      const float* plane = x.data<float>() + (o[0] * 3 + o[1] / p.features) * p.size[0] * p.size[1] * p.size[2];
      const float* weight = w.data<float>() + o[1] * p.kernel[0] * p.kernel[1] * p.kernel[2];
      EXPECT_EQ(std::bit_cast<uint32_t>(y.data<float>()[at]),
                std::bit_cast<uint32_t>(chain(plane, weight, p, {o[2], o[3], o[4]})))
          << to_string(o) << " of " << to_string(sizes);
      ++at;
    });
    // Shorter leaves make a tree of the product: another order, so another way, and close results.
    const codegen::ContractionLeafForTests cut(4);
    const Tensor tree = convolve(p, x, w);
    for (int64_t i = 0; i < y.numel(); ++i) EXPECT_NEAR(tree.data<float>()[i], y.data<float>()[i], 1e-4);
  }
}

}  // namespace
}  // namespace tutti
