#include "tutti/ops/attention/forward.h"

#include <algorithm>

#include "tutti/ops/attention/key_tree.h"
#include "tutti/ops/attention/steps.h"
#include "tutti/ops/creation.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::attention {
namespace {

// Queries of a tile: a block of keys is packed once for all of them; scores and o stay in the second-level cache.
constexpr int64_t kMostRows = 256, kFewestRows = 64, kTileElements = int64_t{1} << 14;
constexpr int64_t kTasksPerThread = 4;

int64_t tile_rows(const Sizes& n, int threads) {
  int64_t rows = std::clamp(kTileElements / std::max<int64_t>(n.D, 1), kFewestRows, kMostRows);
  while (rows > kFewestRows && threads > 1 && n.B * n.Hkv * (n.rows() / rows) < kTasksPerThread * threads) rows /= 2;
  return std::min(rows, n.rows());
}

struct Tile {
  int64_t b, kv, begin, count;
};

// Visits tiles of queries: store(tree, node of all keys, tile). Needs keys.
template <class Store>
void for_each_tile(const OpCall& call, Store store) {
  const Sizes n = forward_sizes(call);
  ThreadPool& pool = ThreadPool::current();
  const int64_t largest = tile_rows(n, pool.threads()), tiles = (n.rows() + largest - 1) / largest;
  pool.parallel_for(n.B * n.Hkv * tiles, 1, [&](int64_t begin, int64_t end) {
    KeyTree tree(call, largest, tiles > 1);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task % tiles * largest;
      const Tile tile{task / tiles / n.Hkv, task / tiles % n.Hkv, row, std::min(largest, n.rows() - row)};
      const Node& node = tree.reduce(tile.b, tile.kv, tile.begin, tile.count);
      store(tree, node, tile);
    }
  });
}

// o of a node, features down, to the rows of `t`.
void store_output(const Node& node, int64_t stride, const Tensor& t, const Tile& tile, DType compute, void* dense,
                  const Sizes& n) {
  codegen::pack({node.o, compute, 1, stride}, tile.count, n.D, compute, dense, n.D);
  rows_of(t, tile.b, tile.kv, n.G).scatter(dense, compute, n.D, tile.begin, tile.count);
}

Tensor dense_rows(const Tile& tile, const Sizes& n, DType compute) {
  return Tensor::empty({tile.count * n.D + codegen::kPackSlack}, compute);
}

}  // namespace

void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const DType compute = compute_dtype(call[0].dtype());
  const Sizes n = forward_sizes(call);
  if (outputs[0].numel() == 0) return;
  if (n.Sk == 0) {
    run_step(kCopy, {}, {zeros(outputs[0].sizes(), compute)}, {outputs[0]});
    run_step(kCopy, {}, {full(outputs[1].sizes(), -kInf, compute)}, {outputs[1]});
    return;
  }
  for_each_tile(call, [&](const KeyTree& tree, const Node& node, const Tile& tile) {
    const codegen::AttentionCall finish{
        .tile = node.o, .m = node.m, .l = node.l, .rows = n.D, .columns = tree.width(), .stride = tree.stride()};
    codegen::attention_kernel_for({codegen::AttentionStep::finish, compute})(&finish);
    const Tensor dense = dense_rows(tile, n, compute);
    store_output(node, tree.stride(), outputs[0], tile, compute, dense.raw_data(), n);
    statistics_of(outputs[1], tile.b, tile.kv, n.G).scatter(node.m, compute, 1, tile.begin, tile.count);
  });
}

void kernel_partial(const OpCall& call, std::span<const Tensor> outputs) {
  const DType compute = compute_dtype(call[0].dtype());
  const Sizes n = forward_sizes(call);
  if (outputs[2].numel() == 0) return;
  if (n.Sk == 0) {
    const double identity[] = {-kInf, 0, 0};
    for (size_t k = 0; k < 3; ++k)
      run_step(kCopy, {}, {full(outputs[k].sizes(), identity[k], outputs[k].dtype())}, {outputs[k]});
    return;
  }
  for_each_tile(call, [&](const KeyTree& tree, const Node& node, const Tile& tile) {
    const Tensor dense = dense_rows(tile, n, compute);
    store_output(node, tree.stride(), outputs[2], tile, compute, dense.raw_data(), n);
    rows_of(outputs[0], tile.b, tile.kv, n.G).scatter(node.m, compute, 1, tile.begin, tile.count);
    rows_of(outputs[1], tile.b, tile.kv, n.G).scatter(node.l, compute, 1, tile.begin, tile.count);
  });
}

}  // namespace tutti::attention
