#include "tutti/ops/attention/geometry.h"

#include <algorithm>

#include "tutti/ops/attention/steps.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::attention {

Sizes sizes_of(const Tensor& q, const Tensor& k) {
  const Extents &a = q.extents(), &b = k.extents();
  return {a[0], a[1], b[1], a[2], b[2], a[3], b[2] == 0 ? 1 : a[2] / b[2]};
}

Tensor group_of(const Tensor& t, int64_t b, int64_t kv, int64_t G) {
  const Extents& st = t.strides();
  return t.view_as({t.extents()[1], G, t.extents()[3]}, {st[1], st[2], st[3]}, t.offset() + b * st[0] + kv * G * st[2]);
}
codegen::GemmOperand matrix(const Tensor& t) {
  const size_t n = static_cast<size_t>(t.ndim());
  return {t.raw_data(), t.dtype(), t.strides()[n - 2], t.strides()[n - 1]};
}
codegen::GemmOperand transposed(codegen::GemmOperand m) {
  std::swap(m.row_stride, m.column_stride);
  return m;
}
Tensor head_of(const Tensor& t, int64_t b, int64_t h) {
  const Extents& st = t.strides();
  return t.view_as({t.extents()[1], t.extents()[3]}, {st[1], st[3]}, t.offset() + b * st[0] + h * st[2]);
}
Tensor rows_of(const Tensor& t, int64_t begin, int64_t count) {
  return t.view_as({count, t.extents()[1]}, t.strides(), t.offset() + begin * t.strides()[0]);
}
Tensor packed(const Tensor& view) {
  const Extents& e = view.extents();
  const Tensor dense = Tensor::empty(e, view.dtype());
  run_step(kCopy, {}, {view}, {dense});
  return dense.view_as({e[0] * e[1], e[2]}, {e[2], 1}, 0);
}
void unpack(const Tensor& rows, const Tensor& view) {
  const Extents& e = view.extents();
  run_step(kCopy, {}, {rows.view_as(e, {e[1] * e[2], e[2], 1}, rows.offset())}, {view});
}

int64_t Bounds::last_of(int64_t row, int64_t count) const {
  return *std::max_element(last.data<int64_t>() + row, last.data<int64_t>() + row + count);
}
int64_t last_key_of(const OpCall& call, const Sizes& n, const Tensor& last_key, int64_t b, int64_t s) {
  const int64_t causal = call.attrs.as<SdpaAttrs>().causal ? s + n.Sk - n.Sq : n.Sk - 1;
  return std::min(causal, facets::read_int64(last_key, b * last_key.strides()[0] + s * last_key.strides()[1]));
}
Bounds bounds_of(const OpCall& call, const Sizes& n, int64_t b, const Tensor& first_key, const Tensor& last_key) {
  Bounds bounds{Tensor::empty({n.Sq * n.G, 1}, DType::i64), Tensor::empty({n.Sq * n.G, 1}, DType::i64)};
  for (int64_t s = 0; s < n.Sq; ++s) {
    const int64_t last = last_key_of(call, n, last_key, b, s);
    const int64_t first = facets::read_int64(first_key, b * first_key.strides()[0] + s * first_key.strides()[1]);
    for (int64_t g = 0; g < n.G; ++g) {
      bounds.first.data<int64_t>()[s * n.G + g] = first;
      bounds.last.data<int64_t>()[s * n.G + g] = last;
    }
  }
  return bounds;
}
Bounds relative(const Bounds& bounds, int64_t row, int64_t count, int64_t key) {
  Bounds r{Tensor::empty({count, 1}, DType::i64), Tensor::empty({count, 1}, DType::i64)};
  for (int64_t i = 0; i < count; ++i) {
    r.first.data<int64_t>()[i] = bounds.first.data<int64_t>()[row + i] - key;
    r.last.data<int64_t>()[i] = bounds.last.data<int64_t>()[row + i] - key;
  }
  return r;
}

}  // namespace tutti::attention
