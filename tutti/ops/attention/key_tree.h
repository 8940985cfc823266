// A tile of queries against blocks of keys, combined by the softmax monoid in the aligned tree anchored at key 0
// (numerics contract, N10). Blocks that no query of the tile sees are absent nodes: they are not computed.
#pragma once

#include <optional>
#include <vector>

#include "tutti/codegen/attention_kernel.h"
#include "tutti/codegen/gemm/tile_product.h"
#include "tutti/ops/attention/geometry.h"
#include "tutti/ops/attention/scratch.h"

namespace tutti::attention {

// (m, l, o) of every query of a tile over some blocks: o [D][stride], m and l [width]. Queries outside [begin, end) see
// none of the keys: their m is -inf, and their l and o are 0.
struct Node {
  void *o, *m, *l;
  int64_t begin, end;  // whole registers
};

class KeyTree {
 public:
  // For tiles of at most `rows` rows; `again`: several tiles use the same keys, so packed blocks are kept. `call` must
  // outlive the tree; its inputs are q, k, v, first_key, last_key and optionally a mask or, as its attrs say, a table
  // of pages.
  KeyTree(const OpCall& call, int64_t rows, bool again);

  // The node over all keys for rows [begin, begin + count) of group (b, kv); valid until the next call.
  const Node& reduce(int64_t b, int64_t kv, int64_t begin, int64_t count);
  int64_t width() const { return width_; }    // number of queries of the current tile, rounded up to whole registers
  int64_t stride() const { return stride_; }  // elements between rows of o

 private:
  int64_t stride_of(int64_t width) const;
  void load_queries(int64_t b, int64_t kv, int64_t begin, int64_t count);
  void load_bias(const Rows& mask, int64_t begin, int64_t count, int64_t key, int64_t keys);
  // Keys and values, packed for the products.
  struct PackedBlock {
    void *k = nullptr, *v = nullptr;
    int64_t keys = 0;  // how many keys are packed
  };
  const PackedBlock& load_block(int64_t b, int64_t kv, int64_t key, int64_t keys);
  int compute_node(int64_t b, int64_t kv, int64_t key, int64_t keys, const Bounds::Seen& seen);
  void run_softmax(const Node& node, bool bounded, int64_t key, int64_t keys);
  // The two products of a block. In large tiles queries run across. In tiles with fewer queries than the micro-kernel
  // has rows, the layout is transposed: queries run down, and values are read in place.
  void multiply_across(const Node& node, const PackedBlock& block, bool bounded, int64_t key, int64_t keys);
  void scores_down(const Head& k, int64_t keys);
  void output_down(const Node& node, const Head& v, int64_t keys);
  void merge_top();
  int take_node();
  void clear(const Node& node);
  const codegen::TileProduct& product_of(int64_t keys);

  const OpCall& call_;
  const Sizes n_;
  const KeySource key_source_, value_source_;
  const DType compute_, scores_compute_;  // scores_compute_: as GemmProblem::compute
  const int64_t lanes_, block_, widest_, whole_head_;
  int64_t width_ = 0, stride_ = 0, limit_ = 0;  // limit_: behind the last key that the current tile sees
  const codegen::ContractionTree over_features_;
  const int32_t depth_;
  const codegen::TileProduct over_keys_;
  std::optional<codegen::TileProduct> scores_;            // for the size of the last block
  std::optional<codegen::TileProduct> few_scores_, few_;  // for tiles of few queries: by keys, and by values
  Scratch scratch_;
  std::vector<PackedBlock> blocks_;  // the packed blocks of one group, or a single one if they are not reused
  int64_t blocks_of_ = -1;           // the group that blocks_ belong to
  void *dense_, *queries_, *tile_, *keys_, *values_, *rows_, *weights_, *pending_ = nullptr, *bias_ = nullptr,
                                                                        *bias_rows_ = nullptr;
  void *key_room_ = nullptr, *value_room_ = nullptr;  // of a block that comes from pages
  std::optional<Bounds> bounds_;                      // of the current tile, padded to whole registers
  std::vector<Node> nodes_;
  std::vector<int> free_, stack_;  // numbers of nodes; -1: absent
};

}  // namespace tutti::attention
