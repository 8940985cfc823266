#include "tutti/ops/attention/forward.h"

#include <algorithm>
#include <bit>

#include "tutti/ops/attention.h"
#include "tutti/ops/attention/geometry.h"
#include "tutti/ops/attention/steps.h"
#include "tutti/ops/creation.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::attention {
namespace {

constexpr int64_t kQueryTile = 64;

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

}  // namespace

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

}  // namespace tutti::attention
