#include "tutti/ops/attention/gradient_sums.h"

#include <algorithm>
#include <cstring>

#include "tutti/codegen/cpu_target.h"
#include "tutti/ops/attention/steps.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/size_class.h"

namespace tutti::attention {
namespace {

using codegen::AttentionCall;
using codegen::AttentionStep;
using codegen::ContractionTree;
using codegen::PendingSums;
using codegen::TileProduct;

// An input by its place in kernel_backward.
constexpr size_t kG = 0, kQ = 1, kK = 2, kV = 3, kO = 4, kLse = 5, kFirst = 6, kLast = 7, kMask = 8;

int64_t longest(const ContractionTree& tree) {
  return *std::max_element(tree.leaf_lengths.begin(), tree.leaf_lengths.end());
}

// Sums of one result over several calls of a product: where they wait, and how wide they are.
struct Sums {
  const TileProduct& product;
  void* pending;
  int64_t depth, columns;

  // A leaf of `length`, 0 for one that is absent.
  void add(const PendingSums::Step& step, const void* a, const void* b, int64_t b_stride, int64_t length,
           const codegen::TilePartOf* part) const {
    const int32_t leaf = static_cast<int32_t>(length);
    product.run({.a = a,
                 .b = b,
                 .b_stride = b_stride,
                 .c = nullptr,
                 .c_stride = 0,
                 .columns = columns,
                 .leaf_lengths = &leaf,
                 .merges = &step.merges,
                 .is_last = false,
                 .stack = pending,
                 .depth = depth,
                 .pending = step.pending,
                 .part = part});
  }
  // The sum, or zero when nothing waits. A leaf 0 * 0 is added, which leaves no -0.
  void finish(int64_t waiting, const void* zeros, void* c, int64_t c_stride) const {
    const int32_t leaf = 1;
    const uint8_t merges = static_cast<uint8_t>(waiting);
    product.run({.a = zeros,
                 .b = zeros,
                 .b_stride = columns,
                 .c = c,
                 .c_stride = c_stride,
                 .columns = columns,
                 .leaf_lengths = &leaf,
                 .merges = &merges,
                 .stack = pending,
                 .depth = depth,
                 .pending = waiting});
  }
};

// One register more than columns: rows whose distance is a power of two share few places of the nearest cache.
int64_t stride_of(int64_t width, DType compute) { return width + codegen::gemm_lanes(codegen::cpu_target(), compute); }

}  // namespace

// The sum over queries runs over tokens; the heads of a group lie inside a grain (N3t).
GradientSums::GradientSums(const OpCall& call)
    : call_(call),
      n_(sizes_of(call[kQ], call[kK])),
      compute_(compute_dtype(call[kQ].dtype())),
      width_(dq_width(n_, compute_)),
      over_features_(ContractionTree::halving(n_.D)),
      over_positions_(ContractionTree::halving(n_.Sq, static_cast<int32_t>(token_grain()))),
      by_feature_(compute_, n_.D) {
  const int64_t slack = codegen::kPackSlack, rows = longest(over_positions_) * n_.G;
  const int64_t keys = longest(ContractionTree::halving(n_.Sk)),
                across = stride_of(codegen::whole_registers(keys, compute_), compute_);
  rows_ = Tensor::empty({rows * n_.D + slack}, compute_);
  other_rows_ = Tensor::empty({rows * n_.D + slack}, compute_);
  delta_ = Tensor::empty({n_.rows(), 1}, compute_);
  const auto take = [&](int64_t count) { return scratch_.take(count + slack, compute_); };
  lse_ = take(n_.rows());
  p_ = take(rows * across);
  ds_ = take(rows * across);
  ds_packed_ = take(rows * keys);
  k_across_ = take(n_.D * across);
  v_across_ = take(n_.D * across);
  k_down_ = take(keys * width_);
  result_ = take(n_.D * across);
  if (call.inputs.size() > kMask) bias_ = take(rows * across);
  if (over_features_.leaf_lengths.size() > 1) pending_scores_ = take(over_features_.depth() * rows * across);
  const int64_t depth = over_positions_.depth();
  pending_k_ = take(depth * n_.D * across);
  pending_v_ = take(depth * n_.D * across);
  const int64_t zeros = std::max({rows, n_.D, across, width_});
  zeros_ = take(zeros);
  std::memset(zeros_, 0, static_cast<size_t>(zeros * itemsize(compute_)));
  int64_t begin = 0;
  for (const int32_t positions : over_positions_.leaf_lengths) {
    const int64_t count = positions * n_.G;
    leaves_.push_back({begin,
                       count,
                       TileProduct(product_compute(call[kQ].dtype(), call[kK].dtype(), compute_), count),
                       TileProduct(product_compute(call[kG].dtype(), call[kV].dtype(), compute_), count),
                       TileProduct(compute_, count),
                       take(count * n_.D),
                       take(count * n_.D),
                       take(count * n_.D),
                       take(count * n_.D),
                       nullptr,
                       {}});
    begin += count;
  }
}

// As the constructor and load_rows() take it.
int64_t GradientSums::room(const OpCall& call, int64_t keys_of_part) {
  const Sizes n = sizes_of(call[kQ], call[kK]);
  const DType compute = compute_dtype(call[kQ].dtype());
  const int64_t width = dq_width(n, compute), slack = codegen::kPackSlack;
  const ContractionTree over_features = ContractionTree::halving(n.D),
                        over_positions = ContractionTree::halving(n.Sq, static_cast<int32_t>(token_grain()));
  const int64_t rows = longest(over_positions) * n.G, keys = longest(ContractionTree::halving(n.Sk)),
                across = stride_of(codegen::whole_registers(keys, compute), compute);
  int64_t bytes = 0;
  const auto take = [&](int64_t elements) { bytes += block_bytes((elements + slack) * itemsize(compute)); };
  for (const int64_t size : {rows * n.D, rows * n.D, n.rows(), n.rows(), rows * across, rows * across, rows * keys,
                             n.D * across, n.D * across, keys * width, n.D * across})
    take(size);
  if (call.inputs.size() > kMask) take(rows * across);
  if (over_features.leaf_lengths.size() > 1) take(over_features.depth() * rows * across);
  take(over_positions.depth() * n.D * across);
  take(over_positions.depth() * n.D * across);
  take(std::max({rows, n.D, across, width}));
  const int64_t depth = ContractionTree::halving(keys_of_part).depth();
  for (const int32_t positions : over_positions.leaf_lengths) {
    for (int i = 0; i < 4; ++i) take(positions * n.G * n.D);
    if (depth > 0) take(depth * positions * n.G * width);
  }
  return bytes;
}

void GradientSums::load_rows(int64_t b, int64_t kv, int64_t depth) {
  bounds_.emplace(call_, n_, call_[kFirst], call_[kLast], b, 0, n_.rows());
  statistics_of(call_[kLse], b, kv, n_.G).gather(0, n_.rows(), compute_, lse_, 1);
  for (Leaf& leaf : leaves_) {
    const auto load = [&](size_t input, const Tensor& rows) {
      tutti::attention::rows_of(call_[input], b, kv, n_.G)
          .gather(leaf.begin, leaf.rows, compute_, rows.raw_data(), n_.D);
    };
    const auto pack = [&](const TileProduct& product, const Tensor& rows, void* across, void* down) {
      product.pack({rows.raw_data(), compute_, 1, n_.D}, over_features_.leaf_lengths, across);
      by_feature_.pack({rows.raw_data(), compute_, n_.D, 1}, leaf.rows, down);
    };
    load(kQ, rows_);
    pack(leaf.by_keys, rows_, leaf.q, leaf.q_down);
    load(kG, rows_);
    pack(leaf.by_values, rows_, leaf.g, leaf.g_down);
    load(kO, other_rows_);
    const auto dense = [&](const Tensor& rows) { return rows.view_as({leaf.rows, n_.D}, {n_.D, 1}, 0); };
    run_step(kDelta, {}, {dense(rows_), dense(other_rows_)}, {delta_.view_as({leaf.rows, 1}, {1, 1}, leaf.begin)});
    if (depth > depth_) leaf.pending = scratch_.take(depth * leaf.rows * width_, compute_);
    leaf.sums = {};
  }
  depth_ = std::max(depth, depth_);
}

GradientSums::Keys GradientSums::load_keys(int64_t b, int64_t kv, int64_t begin, int64_t count) {
  const Head k = head_of(call_[kK], b, kv), v = head_of(call_[kV], b, kv);
  const int64_t width = codegen::whole_registers(count, compute_);
  const Keys keys{begin, count, width, stride_of(width, compute_)};
  const auto pack_across = [&](const Head& head, const Tensor& rows, const Tensor& of, void* across) {
    const codegen::TileKind kind =
        codegen::tile_kind(product_compute(rows.dtype(), of.dtype(), compute_), codegen::cpu_target());
    codegen::pack_leaves({head.at(begin), head.dtype, head.element_stride, head.key_stride},
                         over_features_.leaf_lengths, count, kind, codegen::PackSide::b, across, keys.stride);
  };
  pack_across(k, call_[kQ], call_[kK], k_across_);
  pack_across(v, call_[kG], call_[kV], v_across_);
  codegen::pack({k.at(begin), k.dtype, k.key_stride, k.element_stride}, count, n_.D, compute_, k_down_, width_);
  return keys;
}

// p and ds of a tile, queries down.
void GradientSums::compute_tile(const Leaf& leaf, const Keys& keys, bool bounded, int64_t b, int64_t kv) {
  const auto seen_tile = [&](int64_t row, int64_t rows, int64_t column, int64_t columns) -> codegen::TilePart {
    return {0, bounds_->sees(leaf.begin + row, leaf.begin + row + rows, keys.begin + column, columns) ? n_.D : 0};
  };
  const codegen::TilePartOf part(seen_tile);
  const auto multiply = [&](const TileProduct& product, const void* rows, const void* across, void* result) {
    product.run({.a = rows,
                 .b = across,
                 .b_stride = keys.stride,
                 .c = result,
                 .c_stride = keys.stride,
                 .columns = keys.width,
                 .leaf_lengths = over_features_.leaf_lengths.data(),
                 .merges = over_features_.merges.data(),
                 .leaves = static_cast<int64_t>(over_features_.leaf_lengths.size()),
                 .stack = pending_scores_,
                 .depth = static_cast<int64_t>(over_features_.depth()),
                 .part = bounded ? &part : nullptr});
  };
  multiply(leaf.by_keys, leaf.q, k_across_, p_);
  multiply(leaf.by_values, leaf.g, v_across_, ds_);
  if (bias_)
    mask_rows(call_[kMask], b, kv, n_)
        .part(keys.begin, keys.count)
        .gather(leaf.begin, leaf.rows, compute_, bias_, keys.stride);
  const SdpaAttrs& attrs = call_.attrs.as<SdpaAttrs>();
  const AttentionCall call{.tile = p_,
                           .other = ds_,
                           .bias = bias_,
                           .first = bounds_->first.data() + leaf.begin,
                           .last = bounds_->last.data() + leaf.begin,
                           .lse = moved(lse_, leaf.begin, compute_),
                           .delta = moved(delta_.raw_data(), leaf.begin, compute_),
                           .rows = leaf.rows,
                           .columns = keys.width,
                           .stride = keys.stride,
                           .first_key = keys.begin,
                           .scale = attrs.scale,
                           .score_cap = attrs.score_cap};
  codegen::attention_kernel_for({AttentionStep::gradient, compute_, bounded, bias_ != nullptr, attrs.score_cap > 0})(
      &call);
}

// Sums, features down, to the rows of a head.
void GradientSums::store(void* sums, const Keys& keys, const Head& to) {
  codegen::pack({sums, compute_, 1, keys.stride}, keys.count, n_.D, compute_, k_down_, n_.D);
  codegen::store_tile(k_down_, compute_, n_.D, keys.count, n_.D, to.at(keys.begin), to.dtype, to.key_stride,
                      to.element_stride);
}

void GradientSums::run(int64_t b, int64_t kv, const TreePart& part, const Tensor& dk, const Tensor& dv, void* dq) {
  const ContractionTree over_keys = ContractionTree::halving(part.count);
  load_rows(b, kv, over_keys.depth());
  int64_t begin = part.begin;
  for (size_t j = 0; j < over_keys.leaf_lengths.size(); begin += over_keys.leaf_lengths[j++]) {
    const Keys keys = load_keys(b, kv, begin, over_keys.leaf_lengths[j]);
    const int64_t depth = over_positions_.depth();
    const Sums sums_k{by_feature_, pending_k_, depth, keys.width}, sums_v{by_feature_, pending_v_, depth, keys.width};
    PendingSums over_queries;
    for (size_t i = 0; i < leaves_.size(); ++i) {
      Leaf& leaf = leaves_[i];
      const Bounds::Seen seen = bounds_->seen(leaf.begin, leaf.begin + leaf.rows, keys.begin, keys.count);
      const bool exists = seen.begin < seen.end;
      const bool bounded = exists && (!seen.all || seen.begin != leaf.begin || seen.end != leaf.begin + leaf.rows);
      if (exists) compute_tile(leaf, keys, bounded, b, kv);
      // Rows that see some of a panel's keys, and keys that some of a strip's rows see.
      struct {
        int64_t column = -1;
        codegen::TilePart rows{};
      } known;
      const auto rows_of_panel = [&](int64_t, int64_t, int64_t column, int64_t columns) {
        if (column == known.column) return known.rows;
        const Bounds::Seen panel = bounds_->seen(leaf.begin, leaf.begin + leaf.rows, keys.begin + column, columns);
        known = {column, {panel.begin - leaf.begin, panel.end - leaf.begin}};
        return known.rows;
      };
      const auto keys_of_strip = [&](int64_t row, int64_t rows, int64_t, int64_t) {
        const KeyRange range = bounds_->range(leaf.begin + row, leaf.begin + row + rows);
        return codegen::TilePart{std::max<int64_t>(range.first - keys.begin, 0),
                                 std::min(range.last - keys.begin + 1, keys.count)};
      };
      const codegen::TilePartOf some_rows(rows_of_panel), some_keys(keys_of_strip);
      if (const PendingSums::Step step = over_queries.next(exists, over_positions_.merges[i]); step.run) {
        sums_k.add(step, leaf.q_down, ds_, keys.stride, exists ? leaf.rows : 0, bounded ? &some_rows : nullptr);
        sums_v.add(step, leaf.g_down, p_, keys.stride, exists ? leaf.rows : 0, bounded ? &some_rows : nullptr);
      }
      if (const PendingSums::Step step = leaf.sums.next(exists, over_keys.merges[j]); step.run) {
        if (exists) leaf.product.pack({ds_, compute_, 1, keys.stride}, keys.count, ds_packed_);
        Sums{leaf.product, leaf.pending, depth_, width_}.add(step, ds_packed_, k_down_, width_, exists ? keys.count : 0,
                                                             bounded ? &some_keys : nullptr);
      }
    }
    sums_k.finish(over_queries.pending(), zeros_, result_, keys.stride);
    store(result_, keys, head_of(dk, b, kv));
    sums_v.finish(over_queries.pending(), zeros_, result_, keys.stride);
    store(result_, keys, head_of(dv, b, kv));
  }
  for (const Leaf& leaf : leaves_)
    Sums{leaf.product, leaf.pending, depth_, width_}.finish(leaf.sums.pending(), zeros_,
                                                            moved(dq, leaf.begin * width_, compute_), width_);
}

}  // namespace tutti::attention
