#include "tutti/ops/attention.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "tutti/codegen/gemm.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/squeeze.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;

extern const OpDef kSdpa, kSdpaBackward;

std::atomic<int64_t>& block_setting() {
  static std::atomic<int64_t> keys{64};
  return keys;
}
constexpr int64_t kQueryTile = 64;
constexpr double kInf = std::numeric_limits<double>::infinity();

struct SdpaAttrs {
  double scale;
  bool causal;
  bool partial = false;  // gradients stay unrounded
};

// ---- steps: recipes that run on scratch tensors ---------------------------------------------------------------------
// Rows are (query position, head of the group), head fastest. `first` and `last` (i64, per row) bound the visible keys.

int scale_param(const OpCall& call, codegen::ParamValue* params) {
  params[0].f = call.attrs.as<SdpaAttrs>().scale;
  return 1;
}

Expr visible(RecipeBuilder& b, Expr first, Expr last) {
  const Expr i = b.inner_index();
  return apply_scalar(ScalarOp::bit_and, apply_scalar(ScalarOp::ge, i, first), apply_scalar(ScalarOp::le, i, last));
}

// scores, first, last -> p = exp(x - m), m, l of one key block.
void build_block(RecipeBuilder& b) {
  const Expr s = b.in(0), absent = b.constant(-kInf, s.dtype());
  const Expr x = where(visible(b, b.in(1), b.in(2)), s * b.param(0, s.dtype()), absent);
  const auto [m, l] = b.softmax_stats(x);
  const Expr empty = apply_scalar(ScalarOp::eq, m, absent);
  b.out(where(empty, b.constant(0.0, s.dtype()), apply_scalar(ScalarOp::exp, x - m)));
  b.out(m);
  b.out(l);
}

// (xa, xb, ma, mb) -> xa exp(ma - m) + xb exp(mb - m): combines o, and l likewise; an absent side is the identity.
void build_combine(RecipeBuilder& b) {
  const Expr xa = b.in(0), xb = b.in(1), ma = b.in(2), mb = b.in(3), absent = b.constant(-kInf, xa.dtype());
  const Expr m = apply_scalar(ScalarOp::maximum, ma, mb);
  const Expr sa = apply_scalar(ScalarOp::exp, ma - m), sb = apply_scalar(ScalarOp::exp, mb - m);
  const Expr both = apply_scalar(ScalarOp::fma, xa, sa, xb * sb);
  b.out(where(apply_scalar(ScalarOp::eq, ma, absent), xb, where(apply_scalar(ScalarOp::eq, mb, absent), xa, both)));
}
void build_maximum(RecipeBuilder& b) { b.out(apply_scalar(ScalarOp::maximum, b.in(0), b.in(1))); }
// o, l -> o / l; zeros for a query that saw nothing.
void build_finish(RecipeBuilder& b) {
  const Expr o = b.in(0), l = b.in(1), zero = b.constant(0.0, o.dtype());
  b.out(where(apply_scalar(ScalarOp::eq, l, zero), zero, o / l));
}
void build_lse(RecipeBuilder& b) { b.out(b.in(0) + apply_scalar(ScalarOp::log, b.in(1))); }
// scores, dp, lse, delta, first, last -> p, ds
void build_probabilities(RecipeBuilder& b) {
  const Expr s = b.in(0), scale = b.param(0, s.dtype()), zero = b.constant(0.0, s.dtype());
  const Expr seen = visible(b, b.in(4), b.in(5));
  const Expr p = where(seen, apply_scalar(ScalarOp::exp, s * scale - b.in(2)), zero);
  b.out(p);
  b.out(where(seen, p * (b.in(1) - b.in(3)) * scale, zero));
}
// g, o -> sum(g o)
void build_delta(RecipeBuilder& b) {
  const DType compute = compute_dtype(b.call[1].dtype());
  b.out(b.reduce(ReduceOp::sum, cast(b.in(0), compute) * cast(b.in(1), compute)));
}
void build_copy(RecipeBuilder& b) { b.out(b.in(0)); }

constexpr OpDef step(const char* name, int inputs, int outputs, const Recipe& recipe) {
  return {.name = name, .num_inputs = inputs, .num_outputs = outputs, .infer = nullptr, .recipe = recipe};
}
const OpDef kBlock = step("sdpa_block", 3, 3, {.kind = LoopKind::row, .build = build_block, .per_row = 0b110, .params = scale_param,
                                               .leaf = [](const OpCall&) { return key_block(); }});
const OpDef kCombine = step("sdpa_combine", 4, 1, {.build = build_combine});
const OpDef kMaximum = step("sdpa_maximum", 2, 1, {.build = build_maximum});
const OpDef kFinish = step("sdpa_finish", 2, 1, {.build = build_finish});
const OpDef kLse = step("sdpa_lse", 2, 1, {.build = build_lse});
const OpDef kProbabilities = step("sdpa_probabilities", 6, 2, {.kind = LoopKind::row, .build = build_probabilities, .params = scale_param});
const OpDef kDelta = step("sdpa_delta", 2, 1, {.kind = LoopKind::row, .build = build_delta, .per_row = 1});
const OpDef kCopy = step("sdpa_copy", 1, 1, {.build = build_copy});

void run_step(const OpDef& op, const Attrs& attrs, std::initializer_list<Tensor> inputs, std::initializer_list<Tensor> outputs) {
  const OpCall call{op, {inputs.begin(), inputs.size()}, attrs};
  run_recipe(call, {outputs.begin(), outputs.size()});
}

// ---- geometry -------------------------------------------------------------------------------------------------------

struct Sizes {
  int64_t B, Sq, Sk, Hq, Hkv, D, G;
};
Sizes sizes_of(const Tensor& q, const Tensor& k) {
  const Extents &a = q.extents(), &b = k.extents();
  return {a[0], a[1], b[1], a[2], b[2], a[3], b[2] == 0 ? 1 : a[2] / b[2]};
}

// [S, G, D] view of the heads of one group, and one head of keys or values as a matrix operand.
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
// Dense copy of a [S, G, D] view as [S * G, D].
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

struct Bounds {
  Tensor first, last;  // i64 [Sq * G, 1]: keys that a row may see
  int64_t last_of(int64_t row, int64_t count) const {
    return *std::max_element(last.data<int64_t>() + row, last.data<int64_t>() + row + count);
  }
};
// The key bound of query s as causal attention and last_key set it.
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
// The bounds of some rows relative to a key block.
Bounds relative(const Bounds& bounds, int64_t row, int64_t count, int64_t key) {
  Bounds r{Tensor::empty({count, 1}, DType::i64), Tensor::empty({count, 1}, DType::i64)};
  for (int64_t i = 0; i < count; ++i) {
    r.first.data<int64_t>()[i] = bounds.first.data<int64_t>()[row + i] - key;
    r.last.data<int64_t>()[i] = bounds.last.data<int64_t>()[row + i] - key;
  }
  return r;
}

// ---- forward --------------------------------------------------------------------------------------------------------

// One node of the aligned tree for the rows of a tile.
struct Monoid {
  Tensor m, l, o;
};

void combine(const Monoid& a, const Monoid& b) {
  run_step(kCombine, {}, {a.o, b.o, a.m, b.m}, {a.o});
  run_step(kCombine, {}, {a.l, b.l, a.m, b.m}, {a.l});
  run_step(kMaximum, {}, {a.m, b.m}, {a.m});
}

// q: rows of one tile [R, D]; k, v: one head. Returns the monoid over all keys up to `limit`.
Monoid attend(const OpCall& call, const Tensor& q, const Tensor& k, const Tensor& v, const Bounds& bounds, int64_t row,
              int64_t limit, DType compute) {
  const int64_t R = q.extents()[0], D = q.extents()[1];
  const int64_t keys_per_block = key_block();
  std::vector<Monoid> stack;
  const auto merge_top = [&] {
    const Monoid right = std::move(stack.back());
    stack.pop_back();
    combine(stack.back(), right);
  };
  for (int64_t key = 0, block = 0; key < limit; key += keys_per_block, ++block) {
    const int64_t n = std::min(keys_per_block, limit - key);
    const Tensor scores = Tensor::empty({R, n}, compute);
    const codegen::ContractionTree over_features = codegen::ContractionTree::halving(D);
    codegen::gemm(R, n, D, matrix(q), transposed(matrix(rows_of(k, key, n))), {scores.raw_data(), compute, n}, over_features);
    Monoid node{Tensor::empty({R, 1}, compute), Tensor::empty({R, 1}, compute), Tensor::empty({R, D}, compute)};
    const Bounds local = relative(bounds, row, R, key);
    run_step(kBlock, call.attrs, {scores, local.first, local.last}, {scores, node.m, node.l});
    // The keys of a block are one leaf.
    codegen::gemm(R, D, n, matrix(scores), matrix(rows_of(v, key, n)), {node.o.raw_data(), compute, D},
                  codegen::ContractionTree::halving(n, static_cast<int32_t>(keys_per_block)));
    stack.push_back(std::move(node));
    for (int merges = std::countr_one(static_cast<uint64_t>(block)); merges > 0; --merges) merge_top();
  }
  while (stack.size() > 1) merge_top();
  return std::move(stack.front());
}

// Visits tiles of queries: store(node of all keys, rows of the tile in a [B, Sq, Hq, X] tensor). Needs keys.
template <class Store>
void for_each_tile(const OpCall& call, Store store) {
  const Tensor &q = call[0], &k = call[1], &v = call[2], &first_key = call[3];
  const Sizes n = sizes_of(q, k);
  const DType compute = compute_dtype(q.dtype());
  const int64_t tiles = (n.Sq + kQueryTile - 1) / kQueryTile;
  ThreadPool::current().parallel_for(n.B * n.Hkv * tiles, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t tile = task % tiles, kv = task / tiles % n.Hkv, b = task / tiles / n.Hkv;
      const int64_t s0 = tile * kQueryTile, count = std::min(kQueryTile, n.Sq - s0), row = s0 * n.G, R = count * n.G;
      const Bounds bounds = bounds_of(call, n, b, first_key, call[4]);
      const int64_t limit = std::clamp<int64_t>(bounds.last_of(row, R) + 1, 1, n.Sk);
      const auto tile_of = [&](const Tensor& t) {
        const Tensor group = group_of(t, b, kv, n.G);
        return group.view_as({count, n.G, t.extents()[3]}, group.strides(), group.offset() + s0 * group.strides()[0]);
      };
      store(attend(call, packed(tile_of(q)), head_of(k, b, kv), head_of(v, b, kv), bounds, row, limit, compute), tile_of);
    }
  });
}

// Outputs o [B, Sq, Hq, D] and lse [B, Sq, Hq].
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const DType compute = compute_dtype(call[0].dtype());
  if (outputs[0].numel() == 0) return;
  if (call[1].extents()[1] == 0) {
    run_step(kCopy, {}, {zeros(outputs[0].sizes(), compute)}, {outputs[0]});
    run_step(kCopy, {}, {full(outputs[1].sizes(), -kInf, compute)}, {outputs[1]});
    return;
  }
  const Extents& e = outputs[1].extents();
  const Extents& st = outputs[1].strides();
  const Tensor lse = outputs[1].view_as({e[0], e[1], e[2], 1}, {st[0], st[1], st[2], 1}, outputs[1].offset());
  for_each_tile(call, [&](const Monoid& total, const auto& tile_of) {
    run_step(kFinish, {}, {total.o, total.l}, {total.o});
    unpack(total.o, tile_of(outputs[0]));
    run_step(kLse, {}, {total.m, total.l}, {total.m});
    unpack(total.m, tile_of(lse));
  });
}

// Outputs m, l [B, Sq, Hq, 1] and o [B, Sq, Hq, D], not divided by l.
void kernel_partial(const OpCall& call, std::span<const Tensor> outputs) {
  if (outputs[2].numel() == 0) return;
  if (call[1].extents()[1] == 0) {
    const double identity[] = {-kInf, 0, 0};
    for (size_t k = 0; k < 3; ++k) run_step(kCopy, {}, {full(outputs[k].sizes(), identity[k], outputs[k].dtype())}, {outputs[k]});
    return;
  }
  for_each_tile(call, [&](const Monoid& node, const auto& tile_of) {
    unpack(node.m, tile_of(outputs[0]));
    unpack(node.l, tile_of(outputs[1]));
    unpack(node.o, tile_of(outputs[2]));
  });
}

void infer_partial(const OpCall& call, OutputMetas& out) {
  const Tensor& q = call[0];
  const DType compute = compute_dtype(q.dtype());
  for (int k = 0; k < 2; ++k) out.add(compute, {q.size(0), q.size(1), q.size(2), 1});
  out.add(compute, q.sizes());
}

void infer(const OpCall& call, OutputMetas& out) {
  const Tensor& q = call[0];
  out.add(q.dtype(), q.sizes());
  out.add(compute_dtype(q.dtype()), {q.size(0), q.size(1), q.size(2)});
}

// ---- backward: inputs g, q, k, v, o, lse, first_key, last_key; outputs dq, dk, dv ---------------------------------------------

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

void infer_backward(const OpCall& call, OutputMetas& out) {
  const bool partial = call.attrs.as<SdpaAttrs>().partial;
  for (size_t i : {1, 2, 3}) out.add(partial ? compute_dtype(call[i].dtype()) : call[i].dtype(), call[i].sizes());
}

void vjp(const VjpCall& call, std::span<Tensor> grads) {
  TUTTI_CHECK(!call.grads[1].defined(), "sdpa: the statistics output has no gradient");
  if (!call.grads[0].defined()) return;
  const Tensor inputs[] = {call.grads[0], call.inputs[0], call.inputs[1], call.inputs[2], call.outputs[0], call.outputs[1], call.inputs[3],
                           call.inputs[4]};
  apply(kSdpaBackward, inputs, call.attrs, grads.first(3));
}

// ---- reference: loops in double -------------------------------------------------------------------------------------

double at4(const Tensor& t, int64_t b, int64_t s, int64_t h, int64_t d) {
  const Extents& st = t.strides();
  return facets::read_double(t, b * st[0] + s * st[1] + h * st[2] + d * st[3]);
}

// Scaled scores of query (b, s, h) over all keys, -inf for those it does not see; their maximum through `m`.
std::vector<double> scores_of(const OpCall& call, const Tensor& q, const Tensor& k, const Tensor& first_key,
                              const Tensor& last_key, int64_t b, int64_t s, int64_t h, double* m) {
  const Sizes n = sizes_of(q, k);
  const SdpaAttrs& attrs = call.attrs.as<SdpaAttrs>();
  const int64_t first = facets::read_int64(first_key, b * first_key.strides()[0] + s * first_key.strides()[1]);
  std::vector<double> x(static_cast<size_t>(n.Sk), -kInf);
  *m = -kInf;
  for (int64_t t = std::max<int64_t>(first, 0); t <= last_key_of(call, n, last_key, b, s); ++t) {
    double dot = 0;
    for (int64_t d = 0; d < n.D; ++d) dot += at4(q, b, s, h, d) * at4(k, b, t, h / n.G, d);
    x[static_cast<size_t>(t)] = dot * attrs.scale;
    *m = std::max(*m, x[static_cast<size_t>(t)]);
  }
  return x;
}

// Probabilities of query (b, s, h) over all keys; lse through `lse`.
std::vector<double> probabilities(const OpCall& call, const Tensor& q, const Tensor& k, const Tensor& first_key,
                                  const Tensor& last_key, int64_t b, int64_t s, int64_t h, double* lse) {
  double m, l = 0;
  std::vector<double> x = scores_of(call, q, k, first_key, last_key, b, s, h, &m);
  for (double& value : x) {
    value = m == -kInf ? 0 : std::exp(value - m);
    l += value;
  }
  for (double& value : x) value = l == 0 ? 0 : value / l;
  *lse = m + std::log(l);
  return x;
}

template <class Visit>
void for_each_query(const Sizes& n, Visit visit) {
  for (int64_t b = 0; b < n.B; ++b) {
    for (int64_t s = 0; s < n.Sq; ++s) {
      for (int64_t h = 0; h < n.Hq; ++h) visit(b, s, h);
    }
  }
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Sizes n = sizes_of(call[0], call[1]);
  for_each_query(n, [&](int64_t b, int64_t s, int64_t h) {
    double lse;
    const auto p = probabilities(call, call[0], call[1], call[3], call[4], b, s, h, &lse);
    const int64_t row = (b * n.Sq + s) * n.Hq + h;
    for (int64_t d = 0; d < n.D; ++d) {
      double o = 0;
      for (int64_t t = 0; t < n.Sk; ++t) o += p[static_cast<size_t>(t)] * at4(call[2], b, t, h / n.G, d);
      facets::write_double(outputs[0], row * n.D + d, o);
    }
    facets::write_double(outputs[1], row, lse);
  });
}

void reference_partial(const OpCall& call, std::span<const Tensor> outputs) {
  const Sizes n = sizes_of(call[0], call[1]);
  for_each_query(n, [&](int64_t b, int64_t s, int64_t h) {
    double m, l = 0;
    std::vector<double> p = scores_of(call, call[0], call[1], call[3], call[4], b, s, h, &m);
    for (double& value : p) l += value = m == -kInf ? 0 : std::exp(value - m);
    const int64_t row = (b * n.Sq + s) * n.Hq + h;
    facets::write_double(outputs[0], row, m);
    facets::write_double(outputs[1], row, l);
    for (int64_t d = 0; d < n.D; ++d) {
      double o = 0;
      for (int64_t t = 0; t < n.Sk; ++t) o += p[static_cast<size_t>(t)] * at4(call[2], b, t, h / n.G, d);
      facets::write_double(outputs[2], row * n.D + d, o);
    }
  });
}

void reference_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &g = call[0], &q = call[1], &k = call[2], &v = call[3], &o = call[4];
  const Sizes n = sizes_of(q, k);
  std::vector<double> dq(static_cast<size_t>(q.numel())), dk(static_cast<size_t>(k.numel())), dv(static_cast<size_t>(k.numel()));
  for_each_query(n, [&](int64_t b, int64_t s, int64_t h) {
    double lse, delta = 0;
    const auto p = probabilities(call, q, k, call[6], call[7], b, s, h, &lse);
    for (int64_t d = 0; d < n.D; ++d) delta += at4(g, b, s, h, d) * at4(o, b, s, h, d);
    for (int64_t t = 0; t < n.Sk; ++t) {
      double dp = 0;
      for (int64_t d = 0; d < n.D; ++d) dp += at4(g, b, s, h, d) * at4(v, b, t, h / n.G, d);
      const double ds = p[static_cast<size_t>(t)] * (dp - delta) * call.attrs.as<SdpaAttrs>().scale;
      for (int64_t d = 0; d < n.D; ++d) {
        const size_t qi = static_cast<size_t>(((b * n.Sq + s) * n.Hq + h) * n.D + d);
        const size_t ki = static_cast<size_t>(((b * n.Sk + t) * n.Hkv + h / n.G) * n.D + d);
        dq[qi] += ds * at4(k, b, t, h / n.G, d);
        dk[ki] += ds * at4(q, b, s, h, d);
        dv[ki] += p[static_cast<size_t>(t)] * at4(g, b, s, h, d);
      }
    }
  });
  for (size_t i = 0; i < dq.size(); ++i) facets::write_double(outputs[0], static_cast<int64_t>(i), dq[i]);
  for (size_t i = 0; i < dk.size(); ++i) facets::write_double(outputs[1], static_cast<int64_t>(i), dk[i]);
  for (size_t i = 0; i < dv.size(); ++i) facets::write_double(outputs[2], static_cast<int64_t>(i), dv[i]);
}

// ---- nodes of several chunks: inputs m, l, o of each ----------------------------------------------------------------

void infer_nodes(const OpCall& call, OutputMetas& out) {
  for (size_t k = 0; k < 3; ++k) out.add(call[k].dtype(), call[k].sizes());
}
Expr combined(RecipeBuilder& b, Expr xa, Expr xb) {
  const Expr ma = b.in(0), mb = b.in(3), absent = b.constant(-kInf, ma.dtype());
  const Expr m = apply_scalar(ScalarOp::maximum, ma, mb);
  const Expr both = apply_scalar(ScalarOp::fma, xa, apply_scalar(ScalarOp::exp, ma - m), xb * apply_scalar(ScalarOp::exp, mb - m));
  return where(apply_scalar(ScalarOp::eq, ma, absent), xb, where(apply_scalar(ScalarOp::eq, mb, absent), xa, both));
}
void build_nodes(RecipeBuilder& b) {
  b.out(apply_scalar(ScalarOp::maximum, b.in(0), b.in(3)));
  b.out(combined(b, b.in(1), b.in(4)));
  b.out(combined(b, b.in(2), b.in(5)));
}
// visit(row, features) for each query of o [B, S, H, D].
template <class Visit>
void for_each_node(const Tensor& o, Visit visit) {
  const int64_t D = o.extents()[3];
  for (int64_t row = 0; row < o.extents()[0] * o.extents()[1] * o.extents()[2]; ++row) visit(row, D);
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

struct ResultAttrs {
  DType dtype;
};
void infer_result(const OpCall& call, OutputMetas& out) {
  out.add(call.attrs.as<ResultAttrs>().dtype, call[2].sizes());
  out.add(call[0].dtype(), call[0].sizes());
}
void build_result(RecipeBuilder& b) {
  const Expr m = b.in(0), l = b.in(1), o = b.in(2), zero = b.constant(0.0, o.dtype());
  b.out(where(apply_scalar(ScalarOp::eq, l, zero), zero, o / l));
  b.out(m + apply_scalar(ScalarOp::log, l));
}
void reference_result(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor m = to_contiguous(call[0]), l = to_contiguous(call[1]), o = to_contiguous(call[2]);
  for_each_node(o, [&](int64_t row, int64_t D) {
    const double sum = facets::read_double(l, row);
    for (int64_t i = row * D; i < row * D + D; ++i) facets::write_double(outputs[0], i, sum == 0 ? 0 : facets::read_double(o, i) / sum);
    facets::write_double(outputs[1], row, facets::read_double(m, row) + std::log(sum));
  });
}

// ---- samples --------------------------------------------------------------------------------------------------------

std::vector<Sample> samples(bool backward) {
  struct Case {
    const char* name;
    int64_t B, Sq, Sk, Hq, Hkv, D;
    bool causal;
  };
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const Case& c : {Case{"full", 2, 5, 7, 2, 2, 8, false}, Case{"causal_gqa", 1, 70, 70, 4, 2, 16, true},
                          Case{"one", 1, 1, 1, 1, 1, 1, true}, Case{"cached", 1, 3, 130, 2, 1, 4, true},
                          Case{"packed", 2, 33, 33, 2, 1, 8, true}, Case{"no_queries", 1, 0, 4, 2, 1, 4, false},
                          Case{"head_tail", 1, 8, 130, 2, 1, 4, false}}) {
      const Tensor q = facets::sample_tensor(1, {c.B, c.Sq, c.Hq, c.D}, dtype), k = facets::sample_tensor(2, {c.B, c.Sk, c.Hkv, c.D}, dtype),
                   v = facets::sample_tensor(3, {c.B, c.Sk, c.Hkv, c.D}, dtype), first = Tensor::empty({c.B, c.Sq}, DType::i32), last = Tensor::empty({c.B, c.Sq}, DType::i32);
      for (int64_t i = 0; i < last.numel(); ++i) last.data<int32_t>()[i] = static_cast<int32_t>(c.Sq != 8 ? 1000 : i < 4 ? 126 + i : 4 * i);
      for (int64_t i = 0; i < first.numel(); ++i) first.data<int32_t>()[i] = c.B == 2 && c.causal && i % c.Sq >= 20 ? 20 : 0;
      Sample s{fmt::format("{}_{}", c.name, name_of(dtype)), {q, k, v, first, last}, Attrs::of(SdpaAttrs{1 / std::sqrt(double(c.D)), c.causal})};
      if (backward) {
        const Tensor o = Tensor::empty(q.extents(), dtype), lse = Tensor::empty({c.B, c.Sq, c.Hq}, compute_dtype(dtype));
        const Tensor outputs[] = {o, lse};
        reference({kSdpa, s.inputs, s.attrs}, outputs);
        s.inputs = {facets::sample_tensor(4, q.extents(), dtype), q, k, v, o, lse, first, last};
      }
      list.push_back(s);
    }
  }
  return list;
}

// Nodes of `count` chunks for the same queries, one of which sees nothing of the first.
std::vector<Sample> node_samples(int count, const Attrs& attrs) {
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, DType::f64}) {
    for (const Extents& sizes : {Extents{2, 3, 2, 5}, Extents{1, 1, 1, 1}, Extents{1, 0, 2, 4}}) {
      Sample s{fmt::format("{}_{}", name_of(dtype), list.size()), {}, attrs};
      for (int k = 0; k < count; ++k) {
        const Extents one{sizes[0], sizes[1], sizes[2], 1};
        const uint64_t seed = static_cast<uint64_t>(3 * k);
        s.inputs.insert(s.inputs.end(), {facets::sample_tensor(seed + 1, one, dtype, -3, 3), facets::sample_tensor(seed + 2, one, dtype, 1, 9),
                                         facets::sample_tensor(seed + 3, sizes, dtype, -4, 4)});
      }
      if (count == 2 && s.inputs[0].numel() > 1) facets::write_double(s.inputs[0], 1, -kInf);
      list.push_back(s);
    }
  }
  return list;
}

Cost attention_cost(const OpCall& call, size_t q, double products) {
  const Sizes n = sizes_of(call[q], call[q + 1]);
  const double pairs = static_cast<double>(n.B * n.Hq) * static_cast<double>(n.Sq * n.Sk);
  double bytes = 0;
  for (const Tensor& t : call.inputs) bytes += static_cast<double>(t.nbytes());
  return {2 * products * pairs * static_cast<double>(n.D), 2 * bytes};
}

const OpDef kSdpa{.name = "sdpa", .num_inputs = 5, .num_outputs = 2, .infer = infer, .reference = reference,
                  .gradient = {.vjp = vjp, .saves_inputs = 0b11111, .saves_outputs = 0b11},
                  .kernel = kernel,  // matrix products and row recipes in turn on tiles: no single loop nest
                  .sharding = [](const OpCall&) { return std::string("#q[bSHD] #k[bTKD] #v[bTKD] #f[bS] #e[bS] -> o[bSHD] l[bSH] | |"); },
                  .cost = [](const OpCall& call) { return attention_cost(call, 0, 2); },
                  .samples = [] { return samples(false); }, .tolerance = {.f32 = 2e-5}};
const OpDef kSdpaBackward{.name = "sdpa_backward", .num_inputs = 8, .num_outputs = 3, .infer = infer_backward,
                          .reference = reference_backward,
                          .gradient = {.none = "gradients of this gradient are not defined; write attention with matmul and softmax"},
                          .kernel = kernel_backward,  // as sdpa
                          .sharding = [](const OpCall&) {
                            return std::string("#g[bSHD] #q[bSHD] #k[bTKD] #v[bTKD] #o[bSHD] #l[bSH] #f[bS] #e[bS] -> dq[bSHD] dk[bTKD] dv[bTKD] | |");
                          },
                          .cost = [](const OpCall& call) { return attention_cost(call, 1, 5); },
                          .samples = [] { return samples(true); }, .tolerance = {.f32 = 1e-4}};

constexpr const char* kPart = "it is a part of attention over ranks, whose gradient is sdpa_partial_backward";
const OpDef kSdpaPartial{.name = "sdpa_partial", .num_inputs = 5, .num_outputs = 3, .infer = infer_partial,
                         .reference = reference_partial, .gradient = {.none = kPart}, .kernel = kernel_partial,  // as sdpa
                         .sharding = [](const OpCall&) {
                           return std::string("#q[bSHD] #k[bTKD] #v[bTKD] #f[bS] #e[bS] -> m[bSH1] l[bSH1] o[bSHD] | |");
                         },
                         .cost = [](const OpCall& call) { return attention_cost(call, 0, 2); },
                         .samples = [] { return samples(false); }, .tolerance = {.f32 = 2e-5}};
const OpDef kSdpaNodes{.name = "sdpa_combine_nodes", .num_inputs = 6, .num_outputs = 3, .infer = infer_nodes,
                       .reference = reference_nodes, .gradient = {.none = kPart},
                       .recipe = {.kind = LoopKind::row, .build = build_nodes, .per_row = 0b11},
                       .sharding = [](const OpCall&) {
                         return std::string("#m[abc1] #l[abc1] #o[abcD] #n[abc1] #k[abc1] #p[abcD] -> x[abc1] y[abc1] z[abcD] | |");
                       },
                       .samples = [] { return node_samples(2, {}); }};
const OpDef kSdpaResult{.name = "sdpa_result", .num_inputs = 3, .num_outputs = 2, .infer = infer_result,
                        .reference = reference_result, .gradient = {.none = kPart},
                        .recipe = {.kind = LoopKind::row, .build = build_result, .per_row = 0b10},
                        .sharding = [](const OpCall&) { return std::string("#m[abc1] #l[abc1] #o[abcD] -> y[abcD] s[abc1] | |"); },
                        .samples = [] { return node_samples(1, Attrs::of(ResultAttrs{DType::bf16})); }};

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v) {
  TUTTI_CHECK(q.ndim() == 4 && k.ndim() == 4 && v.sizes() == k.sizes() && q.size(0) == k.size(0) && q.size(3) == k.size(3),
              "sdpa: q is {}, k {}, v {}; expected q [B, Sq, Hq, D] and k, v [B, Sk, Hkv, D]", q.sizes(), k.sizes(), v.sizes());
  TUTTI_CHECK(is_floating(q.dtype()) && k.dtype() == q.dtype() && v.dtype() == q.dtype(),
              "sdpa: q, k and v must have one float dtype, they are {}, {} and {}", name_of(q.dtype()), name_of(k.dtype()), name_of(v.dtype()));
  TUTTI_CHECK(k.extent(2) > 0 && q.extent(2) % k.extent(2) == 0, "sdpa: {} query heads cannot share {} key heads evenly", q.size(2), k.size(2));
}

constexpr double kNoBound = 2147483647;

// i32 [B, Sq], by default `unbounded` everywhere.
Tensor key_bound(const Tensor& keys, const Tensor& q, double unbounded, const char* what) {
  if (!keys.defined()) return full({q.size(0), q.size(1)}, unbounded, DType::i32);
  TUTTI_CHECK(keys.ndim() == 2 && keys.size(0) == q.size(0) && keys.size(1) == q.size(1) && is_integral(keys.dtype()),
              "sdpa: {} is {}; expected integers [{}, {}]", what, describe(keys), q.size(0), q.size(1));
  return keys;
}
SdpaAttrs attrs_of(const SdpaOptions& options, const Tensor& q) {
  return {options.scale.value_or(1 / std::sqrt(static_cast<double>(q.extent(3)))), options.causal};
}

}  // namespace

int64_t key_block() { return block_setting().load(std::memory_order_relaxed); }

KeyBlockScope::KeyBlockScope(int64_t keys) : previous_(key_block()) {
  TUTTI_CHECK(keys > 0, "key block: {} keys; expected at least 1", keys);
  block_setting() = keys;
}
KeyBlockScope::~KeyBlockScope() { block_setting() = previous_; }

SdpaResult sdpa_with_logsumexp(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options) {
  check_operands(q, k, v);
  const Tensor inputs[] = {q, k, v, key_bound(options.first_key, q, 0, "first_key"), key_bound(options.last_key, q, kNoBound, "last_key")};
  Tensor outputs[2];
  apply(kSdpa, inputs, Attrs::of(attrs_of(options, q)), outputs);
  return {outputs[0], outputs[1]};
}

Tensor sdpa(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options) {
  return sdpa_with_logsumexp(q, k, v, options).output;
}

SdpaPartial sdpa_partial(const Tensor& q, const Tensor& k, const Tensor& v, const SdpaOptions& options) {
  check_operands(q, k, v);
  const Tensor inputs[] = {q, k, v, key_bound(options.first_key, q, 0, "first_key"), key_bound(options.last_key, q, kNoBound, "last_key")};
  Tensor outputs[3];
  apply(kSdpaPartial, inputs, Attrs::of(attrs_of(options, q)), outputs);
  return {outputs[0], outputs[1], outputs[2]};
}

SdpaPartial combine(const SdpaPartial& a, const SdpaPartial& b) {
  const Tensor inputs[] = {a.maximum, a.sum, a.output, b.maximum, b.sum, b.output};
  Tensor outputs[3];
  apply(kSdpaNodes, inputs, {}, outputs);
  return {outputs[0], outputs[1], outputs[2]};
}

SdpaResult sdpa_of(const SdpaPartial& all, DType dtype) {
  const Tensor inputs[] = {all.maximum, all.sum, all.output};
  Tensor outputs[2];
  apply(kSdpaResult, inputs, Attrs::of(ResultAttrs{dtype}), outputs);
  return {outputs[0], squeeze(outputs[1], -1)};
}

SdpaGradients sdpa_partial_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                    const SdpaResult& result, const SdpaOptions& options) {
  const Tensor inputs[] = {grad, q, k, v, result.output, result.logsumexp, key_bound(options.first_key, q, 0, "first_key"),
                           key_bound(options.last_key, q, kNoBound, "last_key")};
  SdpaAttrs attrs = attrs_of(options, q);
  attrs.partial = true;
  Tensor outputs[3];
  apply(kSdpaBackward, inputs, Attrs::of(attrs), outputs);
  return {outputs[0], outputs[1], outputs[2]};
}

}  // namespace tutti

TUTTI_OPS(attention, &::tutti::kSdpa, &::tutti::kSdpaBackward, &::tutti::kSdpaPartial, &::tutti::kSdpaNodes, &::tutti::kSdpaResult)
