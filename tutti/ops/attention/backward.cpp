#include "tutti/ops/attention/backward.h"

#include "tutti/ops/attention/geometry.h"
#include "tutti/ops/attention/steps.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::attention {
namespace {

// Sums over queries run over tokens; the heads of a group lie inside a grain (N3t).
codegen::ContractionTree over_queries(int64_t Sq, int64_t G) {
  codegen::ContractionTree tree = codegen::ContractionTree::halving(Sq, static_cast<int32_t>(token_grain()));
  for (auto& length : tree.leaf_lengths) length = static_cast<std::remove_reference_t<decltype(length)>>(length * G);
  return tree;
}

void backward_group(const OpCall& call, std::span<const Tensor> outputs, int64_t b, int64_t kv) {
  const Tensor &q = call[1], &k = call[2], &v = call[3];
  const Sizes n = sizes_of(q, k);
  const DType compute = compute_dtype(q.dtype());
  const int64_t R = n.Sq * n.G;
  const Tensor queries = packed(group_of(q, b, kv, n.G)), g = packed(group_of(call[0], b, kv, n.G)),
               o = packed(group_of(call[4], b, kv, n.G)), keys = head_of(k, b, kv), values = head_of(v, b, kv);
  const Extents& ls = call[5].strides();
  const Tensor lse = Tensor::empty({n.Sq, n.G}, compute);
  run_step(kCopy, {}, {call[5].view_as({n.Sq, n.G}, {ls[1], ls[2]}, call[5].offset() + b * ls[0] + kv * n.G * ls[2])}, {lse});
  const Tensor delta = Tensor::empty({R, 1}, compute);
  run_step(kDelta, {}, {g, o}, {delta});
  const Tensor p = Tensor::empty({R, n.Sk}, compute), ds = Tensor::empty({R, n.Sk}, compute);
  const auto over_features = codegen::ContractionTree::halving(n.D);
  codegen::gemm(R, n.Sk, n.D, matrix(queries), transposed(matrix(keys)), {p.raw_data(), compute, n.Sk}, over_features);
  codegen::gemm(R, n.Sk, n.D, matrix(g), transposed(matrix(values)), {ds.raw_data(), compute, n.Sk}, over_features);
  const Bounds bounds = bounds_of(call, n, b, call[6], call[7]);
  run_step(kProbabilities, call.attrs, {p, ds, lse.view_as({R, 1}, {1, 1}, 0), delta, bounds.first, bounds.last}, {p, ds});

  const auto tree = over_queries(n.Sq, n.G);
  const Tensor dk = head_of(outputs[1], b, kv), dv = head_of(outputs[2], b, kv);
  codegen::gemm(n.Sk, n.D, R, transposed(matrix(ds)), matrix(queries), {dk.raw_data(), dk.dtype(), dk.strides()[0]}, tree);
  codegen::gemm(n.Sk, n.D, R, transposed(matrix(p)), matrix(g), {dv.raw_data(), dv.dtype(), dv.strides()[0]}, tree);
  const Tensor dq = Tensor::empty({R, n.D}, outputs[0].dtype());
  codegen::gemm(R, n.D, n.Sk, matrix(ds), matrix(keys), {dq.raw_data(), dq.dtype(), n.D}, codegen::ContractionTree::halving(n.Sk));
  unpack(dq, group_of(outputs[0], b, kv, n.G));
}

}  // namespace

void kernel_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const Sizes n = sizes_of(call[1], call[2]);
  if (n.Sq == 0 || n.Sk == 0 || n.D == 0) {
    for (const Tensor& t : outputs) run_step(kCopy, {}, {zeros(t.sizes(), t.dtype())}, {t});
    return;
  }
  ThreadPool::current().parallel_for(n.B * n.Hkv, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) backward_group(call, outputs, i / n.Hkv, i % n.Hkv);
  });
}

}  // namespace tutti::attention
