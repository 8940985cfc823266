// The gradients of attention for one group of heads, computed in tiles of queries and keys, each of which is a leaf of
// the two trees that sum over queries and keys. Scores are computed once; the contributions of a tile are added in the
// order of each tree.
#pragma once

#include <optional>
#include <vector>

#include "tutti/codegen/attention_kernel.h"
#include "tutti/codegen/gemm/tile_product.h"
#include "tutti/ops/attention/geometry.h"
#include "tutti/ops/attention/scratch.h"
#include "tutti/ops/engine/tree_parts.h"

namespace tutti::attention {

class GradientSums {
 public:
  // `call` has the inputs of kernel_backward and outlives this.
  explicit GradientSums(const OpCall& call);

  // Stores the gradients of k and v for the keys of `part`, a node of the tree over keys, in dk and dv, and the
  // contribution of these keys to the gradient of q in `dq`: dense rows [Sq * G][dq_width()] of the compute dtype.
  // Zeros are +0, because their sign would depend on hidden keys.
  void run(int64_t b, int64_t kv, const TreePart& part, const Tensor& dk, const Tensor& dv, void* dq);

  // The bytes that an object takes when it runs a part of so many keys.
  static int64_t room(const OpCall& call, int64_t keys);
  static int64_t dq_width(const Sizes& n, DType compute) { return codegen::whole_registers(n.D, compute); }

 private:
  // The rows of one leaf of the tree over queries, packed for products with keys (q, g) and for sums over rows
  // (*_down).
  struct Leaf {
    int64_t begin, rows;
    codegen::TileProduct by_keys, by_values, product;  // give these rows: from features of keys, of values; from keys
    void *q, *g, *q_down, *g_down;
    void* pending;  // sums of dq
    codegen::PendingSums sums;
  };
  // The keys of one leaf of the tree over keys: across in k_across_ and v_across_, down in k_down_.
  struct Keys {
    int64_t begin, count, width, stride;  // width: in whole registers
  };

  void load_rows(int64_t b, int64_t kv, int64_t depth);
  Keys load_keys(int64_t b, int64_t kv, int64_t begin, int64_t count);
  void compute_tile(const Leaf& leaf, const Keys& keys, bool bounded, int64_t b, int64_t kv);
  void store(void* sums, const Keys& keys, const Head& to);

  const OpCall& call_;
  const Sizes n_;
  const DType compute_;
  const int64_t width_;  // of dq
  const codegen::ContractionTree over_features_, over_positions_;
  const codegen::TileProduct by_feature_;
  Scratch scratch_;
  std::vector<Leaf> leaves_;
  std::optional<Bounds> bounds_;
  Tensor rows_, other_rows_, delta_;
  int64_t depth_ = 0;  // of leaves_[i].pending
  void *lse_, *p_, *ds_, *ds_packed_, *zeros_, *k_across_, *v_across_, *k_down_,
      *pending_scores_ = nullptr, *pending_k_, *pending_v_, *result_, *bias_ = nullptr;
};

}  // namespace tutti::attention
