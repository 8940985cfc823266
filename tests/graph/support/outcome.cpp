#include "tests/graph/support/outcome.h"

#include "tests/graph/support/same.h"
#include "tutti/autograd/tape.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/where.h"

namespace tutti::graph_test {

bool same_but_for_nans(const Tensor& a, const Tensor& b) {
  if (same_bits(a, b)) return true;
  if (a.dtype() != b.dtype() || !(a.extents() == b.extents()) || !is_floating(a.dtype())) return false;
  const NoGradScope no_grad;
  const auto without_nan = [](const Tensor& t) { return where(isnan(t), full({}, 0.0, t.dtype()), t); };
  return same_bits(isnan(a), isnan(b)) && same_bits(without_nan(a), without_nan(b));
}

}  // namespace tutti::graph_test
