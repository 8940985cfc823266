#include "tutti/ops/sorting/selection.h"

#include <cmath>

#include "tutti/ops/creation.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/row_ops.h"
#include "tutti/ops/scatter.h"

namespace tutti::facets {

void infer_selection(const OpCall& call, OutputMetas& out) {
  const SelectionAttrs& a = selection_attrs(call);
  TUTTI_CHECK(call[0].ndim() == 0 || call[0].sizes()[static_cast<size_t>(a.dim)] != 0,
              "{}: dim {} of x, which is {}, has no elements to choose from; give a dim that is not empty",
              call.op.name, a.dim, describe(call[0]));
  const Shape sizes = rows::reduced_sizes(call[0].sizes(), {a.dim}, a.keepdim);
  out.add(call[0].dtype(), sizes);
  out.add(DType::i64, sizes);
}

void selection_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const Shape& sizes = c.input_metas[0].sizes;
  const int64_t dim = c.attrs.as<SelectionAttrs>().dim;
  const Tensor& g = c.grads[0];
  if (sizes.ndim() == 0) grads[0] = g;
  else
    grads[0] = scatter(full_beside(g, sizes, kSumIdentity, g.dtype()), dim, rows::keep_dims(c.outputs[1], sizes, {dim}),
                       rows::keep_dims(g, sizes, {dim}));
}

std::string selection_sharding(const OpCall& call) {
  const SelectionAttrs& a = selection_attrs(call);
  if (call[0].ndim() == 0) return "#x[] -> v[] #i[]";
  const std::string x = dim_letters(call[0].ndim(), 1u << a.dim);
  std::string y = x;
  y.replace(static_cast<size_t>(a.dim), 1, a.keepdim ? "1" : "");
  return fmt::format("#x[{0}] -> v[{1}] #i[{1}]", x, y);
}

Attrs selection_attrs_of(const char* where, const Tensor& x, int64_t dim, bool keepdim, int64_t k) {
  return Attrs::of(SelectionAttrs{normalize_dim(dim, std::max(x.ndim(), 1), where), keepdim, k});
}

bool SelectionLine::is_nan(int64_t i) const {
  return is_floating(x.dtype()) && std::isnan(read_double(x, offsets[static_cast<size_t>(i)]));
}

bool SelectionLine::less(int64_t a, int64_t b) const {
  const int64_t p = offsets[static_cast<size_t>(a)], q = offsets[static_cast<size_t>(b)];
  if (!is_floating(x.dtype())) return read_int64(x, p) < read_int64(x, q);
  return is_nan(b) ? !is_nan(a) : read_double(x, p) < read_double(x, q);
}

int64_t SelectionLine::first_at_rank(int64_t rank, bool leaves_out_nan) const {
  for (int64_t i = 0; i < size(); ++i) {
    if (leaves_out_nan && is_nan(i)) continue;
    int64_t before = 0, not_behind = 0;
    for (int64_t j = 0; j < size(); ++j) before += less(j, i), not_behind += !less(i, j);
    if (before <= rank && rank < not_behind) return i;
  }
  throw InternalError("first_at_rank: no element has the rank");
}

void reference_select(const Tensor& x, const Dims& dims, std::span<const Tensor> outputs,
                      const std::function<int64_t(const SelectionLine&)>& select) {
  rows::for_each_row(x, dims, [&](int64_t row, const std::vector<int64_t>& offsets) {
    const int64_t at = select(SelectionLine{x, offsets}), from = offsets[static_cast<size_t>(at)];
    if (is_floating(x.dtype())) write_double(outputs[0], row, read_double(x, from));
    else write_int64(outputs[0], row, read_int64(x, from));
    if (outputs.size() > 1) write_int64(outputs[1], row, at);
  });
}

}  // namespace tutti::facets
