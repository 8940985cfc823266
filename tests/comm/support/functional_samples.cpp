#include "tests/comm/support/functional_samples.h"

#include "tutti/comm/functional/functional.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::comm::functional {

Tensor marked(int rank, const Extents& sizes, DType dtype) {
  const Tensor t = Tensor::empty(sizes, dtype);
  for (int64_t i = 0; i < t.numel(); ++i) facets::write_double(t, i, (rank + 1) * 10 + i % 7);
  return t;
}

std::vector<double> values(const Tensor& t) { return facets::values(wait_tensor(t), t.extents()); }

void expect_same(const Tensor& actual, const Tensor& expected) {
  TUTTI_CHECK(actual.extents() == expected.extents() && actual.dtype() == expected.dtype(), "{} is not {}",
              describe(actual), describe(expected));
  TUTTI_CHECK(values(actual) == values(expected), "{} is not {}", to_string(actual), to_string(expected));
}

std::string bytes_of(const Tensor& t) {
  return {static_cast<const char*>(t.storage()->data()), static_cast<size_t>(t.storage()->nbytes())};
}

}  // namespace tutti::comm::functional
