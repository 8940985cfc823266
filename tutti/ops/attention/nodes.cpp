#include "tutti/ops/attention/nodes.h"

#include <algorithm>
#include <cmath>

#include "tutti/ops/attention/steps.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::attention {
namespace {

Expr combined(RecipeBuilder& b, Expr xa, Expr xb) {
  const Expr ma = b.in(0), mb = b.in(3), absent = b.constant(-kInf, ma.dtype());
  const Expr m = apply_scalar(ScalarOp::maximum, ma, mb);
  const Expr both =
      apply_scalar(ScalarOp::fma, xa, apply_scalar(ScalarOp::exp, ma - m), xb * apply_scalar(ScalarOp::exp, mb - m));
  return where(apply_scalar(ScalarOp::eq, ma, absent), xb, where(apply_scalar(ScalarOp::eq, mb, absent), xa, both));
}

// visit(row, features) for each query of o [B, S, H, D].
template <class Visit>
void for_each_node(const Tensor& o, Visit visit) {
  const int64_t D = o.extents()[3];
  for (int64_t row = 0; row < o.extents()[0] * o.extents()[1] * o.extents()[2]; ++row) visit(row, D);
}

}  // namespace

void infer_nodes(const OpCall& call, OutputMetas& out) {
  for (size_t k = 0; k < 3; ++k) out.add(call[k].dtype(), call[k].sizes());
}
void build_nodes(RecipeBuilder& b) {
  b.out(apply_scalar(ScalarOp::maximum, b.in(0), b.in(3)));
  b.out(combined(b, b.in(1), b.in(4)));
  b.out(combined(b, b.in(2), b.in(5)));
}
void reference_nodes(const OpCall& call, std::span<const Tensor> outputs) {
  std::vector<Tensor> in;
  for (const Tensor& t : call.inputs) in.push_back(to_contiguous(t));
  for_each_node(call[2], [&](int64_t row, int64_t D) {
    const double ma = facets::read_double(in[0], row), mb = facets::read_double(in[3], row), m = std::max(ma, mb);
    const double sa = ma == -kInf ? 0 : std::exp(ma - m), sb = mb == -kInf ? 0 : std::exp(mb - m);
    facets::write_double(outputs[0], row, m);
    facets::write_double(outputs[1], row, sa * facets::read_double(in[1], row) + sb * facets::read_double(in[4], row));
    for (int64_t i = row * D; i < row * D + D; ++i)
      facets::write_double(outputs[2], i, sa * facets::read_double(in[2], i) + sb * facets::read_double(in[5], i));
  });
}

void infer_result(const OpCall& call, OutputMetas& out) {
  out.add(call.attrs.as<ResultAttrs>().dtype, call[2].sizes());
  out.add(call[0].dtype(), call[0].sizes());
}
void build_result(RecipeBuilder& b) {
  const Expr m = b.in(0), l = b.in(1), o = b.in(2), zero = b.constant(0.0, o.dtype());
  b.out(where(apply_scalar(ScalarOp::eq, l, zero), zero,
              o / l + zero));  // zeros lose their sign, as in the kernel of one rank
  b.out(m + apply_scalar(ScalarOp::log, l));
}
void reference_result(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor m = to_contiguous(call[0]), l = to_contiguous(call[1]), o = to_contiguous(call[2]);
  for_each_node(o, [&](int64_t row, int64_t D) {
    const double sum = facets::read_double(l, row);
    for (int64_t i = row * D; i < row * D + D; ++i)
      facets::write_double(outputs[0], i, sum == 0 ? 0 : facets::read_double(o, i) / sum);
    facets::write_double(outputs[1], row, facets::read_double(m, row) + std::log(sum));
  });
}

}  // namespace tutti::attention
