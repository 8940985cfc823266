#include "tutti/ops/conv/depthwise.h"

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/ops/engine/strided_lanes.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::facets {
namespace {

constexpr int64_t kLanes = Lanes<float>::kCount;
constexpr int64_t kVectors = 4;             // outputs side by side whose chains hide each other's latency
constexpr int64_t kLongestPlane = 1 << 18;  // elements, padding included

// The positions that windows cover, padding included.
Triple covered(const ConvGeometry& g) {
  Triple t;
  for (size_t d = 0; d < 3; ++d) t[d] = (g.kernel[d] - 1) * g.dilation[d] + 1 + (g.output[d] - 1) * g.stride[d];
  return t;
}

// `padded` holds zeros where x has no element.
void copy_inside(const ConvGeometry& g, const Triple& extent, const float* plane, float* padded) {
  for (int64_t i0 = g.before[0]; i0 < std::min(extent[0], g.before[0] + g.size[0]); ++i0) {
    for (int64_t i1 = g.before[1]; i1 < std::min(extent[1], g.before[1] + g.size[1]); ++i1) {
      const float* line = plane + ((i0 - g.before[0]) * g.size[1] + i1 - g.before[1]) * g.size[2];
      const int64_t count = std::min(extent[2] - g.before[2], g.size[2]);
      if (count > 0)
        std::memcpy(padded + (i0 * extent[1] + i1) * extent[2] + g.before[2], line,
                    static_cast<size_t>(count) * sizeof(float));
    }
  }
}

// `count` outputs of a line. Reads as if they were whole vectors.
template <int64_t kStep>
void line_of_outputs(const float* in, int64_t step, const std::vector<int64_t>& taps, const float* weight,
                     int64_t count, float* out) {
  for (int64_t begin = 0; begin < count; begin += kVectors * kLanes) {
    __m256 sums[kVectors];
    for (__m256& sum : sums) sum = _mm256_set1_ps(-0.0f);
    for (size_t t = 0; t < taps.size(); ++t) {
      const __m256 factor = _mm256_set1_ps(weight[t]);
#pragma GCC unroll 4
      for (int64_t v = 0; v < kVectors; ++v)
        sums[v] = _mm256_fmadd_ps(factor, load_lanes<float, kStep>(in + taps[t] + (begin + v * kLanes) * step, step),
                                  sums[v]);
    }
    std::memcpy(out + begin, sums, static_cast<size_t>(std::min(kVectors * kLanes, count - begin)) * sizeof(float));
  }
}

}  // namespace

bool is_depthwise(const ConvGeometry& g, const Tensor& x, const Tensor& w, const Tensor& y) {
  const bool f32 = x.dtype() == DType::f32 && w.dtype() == DType::f32 && y.dtype() == DType::f32;
  return f32 && w.extents()[1] == 1 && volume(g.kernel) <= codegen::contraction_leaf() &&
         volume(covered(g)) <= kLongestPlane;
}

void depthwise_forward(const ConvGeometry& g, const Tensor& x, const Tensor& w, const Tensor& y) {
  const Triple extent = covered(g);
  const int64_t features = w.extents()[0] / g.groups, kernel = volume(g.kernel), outputs = volume(g.output);
  std::vector<int64_t> taps;
  for (int64_t k0 = 0; k0 < g.kernel[0]; ++k0)
    for (int64_t k1 = 0; k1 < g.kernel[1]; ++k1)
      for (int64_t k2 = 0; k2 < g.kernel[2]; ++k2)
        taps.push_back((k0 * g.dilation[0] * extent[1] + k1 * g.dilation[1]) * extent[2] + k2 * g.dilation[2]);
  ThreadPool::current().parallel_for(x.extents()[0] * g.groups, 1, [&](int64_t begin, int64_t end) {
    const int64_t behind = 2 * kVectors * kLanes * g.stride[2];  // the last line is read as whole vectors
    const auto padded = std::make_unique<float[]>(static_cast<size_t>(volume(extent) + behind));
    for (int64_t place = begin; place < end; ++place) {
      copy_inside(g, extent, x.data<float>() + place * volume(g.size), padded.get());
      for (int64_t f = 0; f < features; ++f) {
        const float* weight = w.data<float>() + (place % g.groups * features + f) * kernel;
        float* out = y.data<float>() + (place * features + f) * outputs;
        for (int64_t line = 0; line < g.output[0] * g.output[1]; ++line, out += g.output[2]) {
          const int64_t o0 = line / g.output[1], o1 = line % g.output[1];
          const float* in = padded.get() + (o0 * g.stride[0] * extent[1] + o1 * g.stride[1]) * extent[2];
          if (g.stride[2] == 1) line_of_outputs<1>(in, 1, taps, weight, g.output[2], out);
          else if (g.stride[2] == 2) line_of_outputs<2>(in, 2, taps, weight, g.output[2], out);
          else line_of_outputs<0>(in, g.stride[2], taps, weight, g.output[2], out);
        }
      }
    }
  });
}

}  // namespace tutti::facets
