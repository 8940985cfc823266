// Maxima of windows against the definition, over elements that are mostly ties, NaN, zeros of both signs and
// infinities.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/max_pool.h"

namespace tutti {
namespace {

struct Pool {
  Extents size;
  MaxPoolOptions options;
};

// The first of the largest elements of a window, row-major, NaN above all; -1 where there is no element.
int64_t definition(const Tensor& x, int64_t plane, const MaxPoolOptions& o, const Extents& window) {
  const int64_t size[3] = {x.extents()[2], x.extents()[3], x.extents()[4]};
  int64_t best = -1;
  double most = 0;
  for (int64_t k = 0; k < o.kernel[0] * o.kernel[1] * o.kernel[2]; ++k) {
    const Extents tap = {k / o.kernel[2] / o.kernel[1], k / o.kernel[2] % o.kernel[1], k % o.kernel[2]};
    int64_t at = 0;
    bool inside = true;
    for (size_t d = 0; d < 3; ++d) {
      const int64_t position = window[d] * o.stride[d] - o.padding[d] + tap[d] * o.dilation[d];
      inside = inside && position >= 0 && position < size[d];
      at = at * size[d] + position;
    }
    if (!inside) continue;
    const double value = facets::read_double(x, plane * size[0] * size[1] * size[2] + at);
    if (best >= 0 && !(value > most) && !(std::isnan(value) && !std::isnan(most))) continue;
    best = at;
    most = value;
  }
  return best;
}

Tensor ties(const Extents& size, DType dtype) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const double values[] = {0.0,      -0.0, 1,    1,         -infinity, -2,   -2, 0.5,
                           infinity, nan,  -nan, -infinity, 1,         -0.0, 3,  -infinity};
  const Tensor x = Tensor::empty({2, 2, size[0], size[1], size[2]}, dtype);
  uint64_t state = 1;
  for (int64_t i = 0; i < x.numel(); ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const bool usual = (state >> 40) % 16 != 0;  // infinity and NaN would win nearly every window
    facets::write_double(x, i, values[usual ? (state >> 33) % 8 : (state >> 33) % 16]);
  }
  return x;
}

void expect_definition(const Pool& p, DType dtype) {
  const Tensor x = ties(p.size, dtype);
  const MaxPoolResult r = max_pool3d_with_indices(x, p.options);
  const int64_t planes = 4, plane = p.size[0] * p.size[1] * p.size[2], outputs = r.indices.numel() / planes;
  int64_t at = 0;
  for (int64_t i = 0; i < planes; ++i)
    for (int64_t o0 = 0; o0 < r.indices.extents()[2]; ++o0)
      for (int64_t o1 = 0; o1 < r.indices.extents()[3]; ++o1)
        for (int64_t o2 = 0; o2 < r.indices.extents()[4]; ++o2, ++at) {
          const int64_t expected = definition(x, i, p.options, {o0, o1, o2}), item = itemsize(dtype);
          ASSERT_EQ(r.indices.data<int64_t>()[at], expected)
              << name_of(dtype) << " " << to_string(p.size) << " output " << at % outputs << " of plane " << i;
          const std::byte* element = static_cast<const std::byte*>(x.raw_data()) + (i * plane + expected) * item;
          ASSERT_EQ(std::memcmp(static_cast<const std::byte*>(r.values.raw_data()) + at * item, element,
                                static_cast<size_t>(item)),
                    0)
              << "a copy, bit by bit";
        }
}

TEST(WindowMaxima, AreTheFirstOfTiesAndNaNInAnyDtype) {
  const Pool pools[] = {
      {{1, 9, 35}, {{1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}}},
      {{1, 11, 70}, {{1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}}},
      {{1, 7, 100}, {{1, 2, 4}, {1, 3, 3}, {0, 0, 2}, {1, 2, 1}}},
      {{1, 1, 67}, {{1, 1, 5}, {1, 1, 2}, {0, 0, 2}, {1, 1, 3}, true}},
      {{5, 6, 7}, {{2, 3, 2}, {2, 1, 2}, {1, 1, 1}, {1, 2, 1}, true}},
      {{4, 5, 40}, {{3, 2, 3}, {1, 2, 5}, {1, 0, 0}, {1, 1, 4}, true}},
      {{1, 1, 1}, {{1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}}},
  };
  for (const Pool& p : pools)
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) expect_definition(p, dtype);
}

TEST(WindowMaxima, OfPlanesThatAreTakenInBands) {
  expect_definition({{1, 310, 211}, {{1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}}}, DType::f32);
  expect_definition({{3, 190, 120}, {{2, 4, 2}, {1, 3, 1}, {0, 2, 1}, {1, 1, 2}, true}}, DType::f32);
}

}  // namespace
}  // namespace tutti
