#include "tutti/comm/exchanges/dense.h"

#include "tutti/ops/engine/index_loops.h"
#include "tutti/tensor/overlap.h"

namespace tutti::comm {
namespace {

Tensor dense_like(const Tensor& t, bool with_values) {
  const Tensor dense = Tensor::empty(t.extents(), t.dtype(), t.device());
  if (with_values) facets::raw_copy(dense, t);
  return dense;
}

}  // namespace

DenseInput::DenseInput(const Tensor& t) : tensor_(t.is_contiguous() ? t : dense_like(t, true)) {}

DenseOutput::DenseOutput(const Tensor& t, bool with_values) : target_(t) {
  refuse_overlap("a collective that writes", t);
  if (!t.is_contiguous()) copy_ = dense_like(t, with_values);
}

void DenseOutput::finish() {
  if (copy_.defined()) facets::raw_copy(target_, copy_);
  target_.storage()->bump_version();
}

}  // namespace tutti::comm
