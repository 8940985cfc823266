#include "tutti/ops/attention/key_tree.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/cut.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/attention/steps.h"

namespace tutti::attention {
namespace {

using codegen::AttentionCall;
using codegen::AttentionStep;

template <class T>
void fill(void* data, int64_t count, T value) {
  std::fill_n(static_cast<T*>(data), count, value);
}
void fill(void* data, int64_t count, DType dtype, double value) {
  if (dtype == DType::f64) fill(data, count, value);
  else fill(data, count, static_cast<float>(value));
}

}  // namespace

// One register more than columns: rows whose distance is a power of two share few places of the nearest cache.
int64_t KeyTree::stride_of(int64_t width) const { return width + lanes_; }

KeyTree::KeyTree(const OpCall& call, int64_t rows, bool again)
    : call_(call),
      n_(forward_sizes(call)),
      key_source_(call, 1),
      value_source_(call, 2),
      compute_(compute_dtype(call[0].dtype())),
      scores_compute_(product_compute(call[0].dtype(), key_source_.dtype(), compute_)),
      lanes_(codegen::gemm_lanes(codegen::cpu_target(), compute_)),
      block_(key_block()),
      widest_(codegen::whole_registers(rows, compute_)),
      whole_head_(codegen::whole_registers(n_.D, compute_)),
      over_features_(codegen::ContractionTree::halving(n_.D)),
      depth_(over_features_.depth()),
      over_keys_(compute_, n_.D) {
  const int64_t slack = codegen::kPackSlack, keys = std::min(block_, n_.Sk);
  const bool paged = call.attrs.as<SdpaAttrs>().paged, masked = !paged && call.inputs.size() > 5;
  dense_ = scratch_.take(widest_ * n_.D + slack, compute_);
  queries_ = scratch_.take(stride_of(widest_) * n_.D + slack, compute_);
  tile_ = scratch_.take(keys * stride_of(widest_), compute_);
  values_ = scratch_.take(keys * whole_head_ + slack, compute_);
  keys_ = scratch_.take(n_.D * codegen::whole_registers(keys, compute_) + slack, compute_);
  const int64_t few = codegen::most_rows(codegen::cpu_target()), across = codegen::whole_registers(keys, compute_);
  rows_ = scratch_.take(few * std::max(whole_head_, across), compute_);
  weights_ = scratch_.take(few * keys + slack, compute_);
  blocks_.resize(static_cast<size_t>(again ? (n_.Sk + block_ - 1) / block_ : 1));
  // Scores of keys by queries, or of few queries by keys, each rounded up across.
  if (over_features_.leaf_lengths.size() > 1)
    pending_ = scratch_.take(depth_ * std::max(keys * widest_, few * across), compute_);
  if (paged) {
    key_room_ = scratch_.take(keys * n_.D + slack, key_source_.dtype());
    value_room_ = scratch_.take(keys * n_.D + slack, value_source_.dtype());
  }
  if (masked) {
    bias_ = scratch_.take(keys * stride_of(widest_) + slack, compute_);
    bias_rows_ = scratch_.take(keys * widest_ + slack, compute_);
  }
}

const codegen::TileProduct& KeyTree::product_of(int64_t keys) {
  if (!scores_ || scores_->rows() != keys) scores_.emplace(scores_compute_, keys);
  return *scores_;
}

int KeyTree::take_node() {
  if (free_.empty()) {
    nodes_.push_back({scratch_.take(n_.D * stride_of(widest_), compute_), scratch_.take(widest_, compute_),
                      scratch_.take(widest_, compute_), 0, 0});
    return static_cast<int>(nodes_.size()) - 1;
  }
  const int node = free_.back();
  free_.pop_back();
  return node;
}

// What queries outside [begin, end) have.
void KeyTree::clear(const Node& node) {
  const int64_t behind = width_ - node.end;
  for (const auto& [data, rows, value] :
       {std::tuple{node.m, int64_t{1}, -kInf}, {node.l, int64_t{1}, 0.0}, {node.o, n_.D, 0.0}}) {
    for (int64_t row = 0; row < rows; ++row) {
      fill(moved(data, row * stride_, compute_), node.begin, compute_, value);
      fill(moved(data, row * stride_ + node.end, compute_), behind, compute_, value);
    }
  }
}

// Features down, queries across.
void KeyTree::load_queries(int64_t b, int64_t kv, int64_t begin, int64_t count) {
  rows_of(call_[0], b, kv, n_.G).gather(begin, count, compute_, dense_, n_.D);
  const codegen::PackSource queries{dense_, compute_, 1, n_.D};
  if (few_) few_scores_->pack(queries, over_features_.leaf_lengths, queries_);
  else
    codegen::pack_leaves(queries, over_features_.leaf_lengths, count,
                         codegen::tile_kind(scores_compute_, codegen::cpu_target()), codegen::PackSide::b, queries_,
                         stride_);
}

void KeyTree::load_bias(const Rows& mask, int64_t begin, int64_t count, int64_t key, int64_t keys) {
  mask.part(key, keys).gather(begin, count, compute_, bias_rows_, keys);
  codegen::pack({bias_rows_, compute_, 1, keys}, keys, count, compute_, bias_, stride_);
}

const KeyTree::PackedBlock& KeyTree::load_block(int64_t b, int64_t kv, int64_t key, int64_t keys) {
  if (const int64_t group = b * n_.Hkv + kv; blocks_of_ != group || blocks_.size() == 1) {
    for (PackedBlock& block : blocks_) block.keys = 0;
    blocks_of_ = group;
  }
  PackedBlock& block = blocks_[blocks_.size() == 1 ? 0 : static_cast<size_t>(key / block_)];
  if (block.keys == keys) return block;
  if (!block.k) {
    const int64_t size = std::min(block_, n_.Sk) * n_.D + codegen::kPackSlack;
    block.k = scratch_.take(size, compute_);
    block.v = scratch_.take(size, compute_);
  }
  block.keys = keys;
  const Head k = key_source_.block(b, kv, key, keys, key_room_);
  const Head v = value_source_.block(b, kv, key, keys, value_room_);
  product_of(keys).pack({k.at(0), k.dtype, k.element_stride, k.key_stride}, over_features_.leaf_lengths, block.k);
  // Rows first, whole: a strip takes a few elements of each, which far apart would push each other out of the nearest
  // cache.
  codegen::pack({v.at(0), v.dtype, v.key_stride, v.element_stride}, keys, n_.D, compute_, values_, n_.D);
  over_keys_.pack({values_, compute_, n_.D, 1}, keys, block.v);
  return block;
}

void KeyTree::multiply_across(const Node& node, const PackedBlock& block, bool bounded, int64_t key, int64_t keys) {
  // Where queries of a panel see no keys of a strip there are no scores, and no weights.
  const auto seen_features = [&](int64_t row, int64_t rows, int64_t column, int64_t columns) -> codegen::TilePart {
    const int64_t query = node.begin + column;
    return {0, bounds_->sees(query, query + columns, key + row, rows) ? n_.D : 0};
  };
  const auto seen_keys = [&](int64_t, int64_t, int64_t column, int64_t columns) -> codegen::TilePart {
    const KeyRange range = bounds_->range(node.begin + column, node.begin + column + columns);
    const int64_t begin = std::max<int64_t>(range.first - key, 0), end = std::min(range.last - key + 1, keys);
    return begin < end ? codegen::TilePart{begin, end}
                       : codegen::TilePart{0, 1};  // weights of 0: o is written all the same
  };
  const codegen::TilePartOf features(seen_features), some_keys(seen_keys);
  void* tile = moved(tile_, node.begin, compute_);
  const int64_t columns = node.end - node.begin;
  product_of(keys).run({.a = block.k,
                        .b = moved(queries_, node.begin, compute_),
                        .b_stride = stride_,
                        .c = tile,
                        .c_stride = stride_,
                        .columns = columns,
                        .leaf_lengths = over_features_.leaf_lengths.data(),
                        .merges = over_features_.merges.data(),
                        .leaves = static_cast<int64_t>(over_features_.leaf_lengths.size()),
                        .stack = pending_,
                        .depth = depth_,
                        .part = bounded ? &features : nullptr});
  run_softmax(node, bounded, key, keys);
  const int32_t length = static_cast<int32_t>(keys);  // the keys of a block are one leaf
  const uint8_t merges = 0;
  over_keys_.run({.a = block.v,
                  .b = tile,
                  .b_stride = stride_,
                  .c = moved(node.o, node.begin, compute_),
                  .c_stride = stride_,
                  .columns = columns,
                  .leaf_lengths = &length,
                  .merges = &merges,
                  .part = bounded ? &some_keys : nullptr});
}

void KeyTree::scores_down(const Head& k, int64_t keys) {
  const int64_t width = codegen::whole_registers(keys, compute_);
  codegen::pack_leaves({k.at(0), k.dtype, k.element_stride, k.key_stride}, over_features_.leaf_lengths, keys,
                       few_scores_->kind(), codegen::PackSide::b, keys_, width);
  few_scores_->run({.a = queries_,
                    .b = keys_,
                    .b_stride = width,
                    .c = rows_,
                    .c_stride = width,
                    .columns = width,
                    .leaf_lengths = over_features_.leaf_lengths.data(),
                    .merges = over_features_.merges.data(),
                    .leaves = static_cast<int64_t>(over_features_.leaf_lengths.size()),
                    .stack = pending_,
                    .depth = depth_});
  codegen::store_tile(rows_, compute_, width, few_->rows(), keys, tile_, compute_, 1, stride_);
}

void KeyTree::output_down(const Node& node, const Head& v, int64_t keys) {
  few_->pack({tile_, compute_, stride_, 1}, keys, weights_);
  const int32_t length = static_cast<int32_t>(keys);
  const uint8_t merges = 0;
  const bool in_place = v.element_stride == 1 && whole_head_ == n_.D;
  if (!in_place)
    codegen::pack({v.at(0), v.dtype, v.key_stride, v.element_stride}, keys, n_.D, compute_, values_, whole_head_);
  few_->run({.a = weights_,
             .b = in_place ? v.at(0) : values_,
             .b_stride = in_place ? v.key_stride : whole_head_,
             .c = rows_,
             .c_stride = whole_head_,
             .columns = whole_head_,
             .leaf_lengths = &length,
             .merges = &merges},
            in_place ? v.dtype : compute_);
  codegen::store_tile(rows_, compute_, whole_head_, few_->rows(), n_.D, node.o, compute_, 1, stride_);
}

void KeyTree::run_softmax(const Node& node, bool bounded, int64_t key, int64_t keys) {
  const auto at = [&](void* data) { return moved(data, node.begin, compute_); };
  const SdpaAttrs& attrs = call_.attrs.as<SdpaAttrs>();
  const AttentionCall call{.tile = at(tile_),
                           .bias = bias_ ? at(bias_) : nullptr,
                           .first = bounds_->first.data() + node.begin,
                           .last = bounds_->last.data() + node.begin,
                           .m = at(node.m),
                           .l = at(node.l),
                           .rows = keys,
                           .columns = node.end - node.begin,
                           .stride = stride_,
                           .first_key = key,
                           .scale = attrs.scale,
                           .score_cap = attrs.score_cap};
  codegen::attention_kernel_for({AttentionStep::softmax, compute_, bounded, bias_ != nullptr, attrs.score_cap > 0})(
      &call);
}

int KeyTree::compute_node(int64_t b, int64_t kv, int64_t key, int64_t keys, const Bounds::Seen& seen) {
  const int number = take_node();
  Node& node = nodes_[static_cast<size_t>(number)];
  node.begin = seen.begin / lanes_ * lanes_;
  node.end = (seen.end + lanes_ - 1) / lanes_ * lanes_;
  clear(node);
  // Lanes of the border registers that see nothing are hidden as well.
  const bool bounded = !seen.all || node.begin != seen.begin || node.end != seen.end;
  if (few_) {
    // Bound by memory: the next keys are on their way while these are computed.
    value_source_.prefetch(b, kv, key, key + keys);
    scores_down(key_source_.block(b, kv, key, keys, key_room_), keys);
    key_source_.prefetch(b, kv, key + keys, std::min(key + keys + block_, limit_));
    run_softmax(node, bounded, key, keys);
    output_down(node, value_source_.block(b, kv, key, keys, value_room_), keys);
    return number;
  }
  multiply_across(node, load_block(b, kv, key, keys), bounded, key, keys);
  return number;
}

void KeyTree::merge_top() {
  const int right = stack_.back();
  stack_.pop_back();
  int& left = stack_.back();
  if (right < 0) return;
  if (left < 0) {
    left = right;
    return;
  }
  Node &a = nodes_[static_cast<size_t>(left)], &b = nodes_[static_cast<size_t>(right)];
  const auto at = [&](void* data) { return moved(data, b.begin, compute_); };
  const AttentionCall call{.tile = at(a.o),
                           .other = at(b.o),
                           .m = at(a.m),
                           .l = at(a.l),
                           .other_m = at(b.m),
                           .other_l = at(b.l),
                           .rows = n_.D,
                           .columns = b.end - b.begin,
                           .stride = stride_};
  codegen::attention_kernel_for({AttentionStep::combine, compute_})(&call);
  a.begin = std::min(a.begin, b.begin);
  a.end = std::max(a.end, b.end);
  free_.push_back(right);
}

const Node& KeyTree::reduce(int64_t b, int64_t kv, int64_t begin, int64_t count) {
  width_ = codegen::whole_registers(count, compute_);
  stride_ = stride_of(width_);
  if (count > codegen::most_rows(codegen::cpu_target())) few_.reset();
  else if (!few_ || few_->rows() != count) {
    few_.emplace(compute_, count);
    few_scores_.emplace(scores_compute_, count);
  }
  for (const int node : stack_) {
    if (node >= 0) free_.push_back(node);
  }
  stack_.clear();
  load_queries(b, kv, begin, count);
  bounds_.emplace(call_, n_, call_[3], call_[4], b, begin, count);
  bounds_->first.resize(static_cast<size_t>(width_), static_cast<int32_t>(n_.Sk));
  bounds_->last.resize(static_cast<size_t>(width_), -1);
  limit_ = bounds_->range(0, count).last + 1;

  for (int64_t key = 0, block = 0; key < limit_; key += block_, ++block) {
    const int64_t keys = std::min(block_, limit_ - key);
    const Bounds::Seen seen = bounds_->seen(0, count, key, keys);
    if (seen.begin < seen.end && bias_) load_bias(mask_rows(call_[5], b, kv, n_), begin, count, key, keys);
    stack_.push_back(seen.begin < seen.end ? compute_node(b, kv, key, keys, seen) : -1);
    for (int merges = std::countr_one(static_cast<uint64_t>(block)); merges > 0; --merges) merge_top();
  }
  while (stack_.size() > 1) merge_top();
  if (stack_.empty()) stack_.push_back(-1);
  if (stack_.front() < 0) {
    stack_.front() = take_node();
    Node& none = nodes_[static_cast<size_t>(stack_.front())];
    none.begin = none.end = 0;
    clear(none);
  }
  return nodes_[static_cast<size_t>(stack_.front())];
}

}  // namespace tutti::attention
