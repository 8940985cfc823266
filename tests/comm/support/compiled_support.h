// Words that the tests of collectives in compiled functions share.
#pragma once

#include <cstring>

#include "tutti/comm/functional/functional.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::comm::functional::compiled_test {

inline Tensor values(const Extents& sizes, int rank, uint64_t seed) {
  return facets::sample_tensor(seed * 16 + static_cast<uint64_t>(rank), sizes);
}

// In a rank's thread: throws, so that run_ranks reports it.
inline void expect_same(const Tensor& got, const Tensor& expected) {
  const Tensor a = to_contiguous(wait_tensor(got)), b = to_contiguous(wait_tensor(expected));
  TUTTI_CHECK(a.extents() == b.extents() && a.dtype() == b.dtype(), "{} is not {}", describe(got), describe(expected));
  if (a.nbytes() == 0) return;
  TUTTI_CHECK(std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0, "{} is not {}",
              to_string(got), to_string(expected));
}

}  // namespace tutti::comm::functional::compiled_test
