#include "tests/dtensor/support/mesh_ranks.h"

#include <cstring>

#include "tutti/ops/engine/facets.h"

namespace tutti::dist {

Tensor sample(const Extents& sizes, DType dtype, uint64_t seed) {
  return facets::sample_tensor(seed, sizes, dtype, -3.0, 3.0);
}

bool same_bits(const Tensor& a, const Tensor& b) { return difference(a, b).empty(); }

std::string difference(const Tensor& a, const Tensor& b) {
  if (!(a.extents() == b.extents()) || a.dtype() != b.dtype()) return describe(a) + " against " + describe(b);
  const Tensor x = to_contiguous(a), y = to_contiguous(b);
  const int64_t item = itemsize(x.dtype());
  for (int64_t i = 0; i < x.numel(); ++i) {
    const char *p = static_cast<const char*>(x.raw_data()) + i * item,
               *q = static_cast<const char*>(y.raw_data()) + i * item;
    if (std::memcmp(p, q, static_cast<size_t>(item)) != 0)
      return fmt::format("element {} of {}: {:a} against {:a}", i, describe(a), load_as_double(p, x.dtype()),
                         load_as_double(q, y.dtype()));
  }
  return "";
}

}  // namespace tutti::dist
