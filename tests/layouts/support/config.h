// The tiny models of the layout tests, the trees they are cut by, and how a run is laid out over ranks.
//
// Letters: T tokens of a virtual shard, D features, H query heads, K key/value heads, E elements of a head, F inner
// features of the feed-forward, V classes.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/sum_to.h"

namespace tutti::layouts {

struct ModelConfig {
  int64_t layers = 2, dim = 41, heads = 4, kv_heads = 2, head_dim = 10, inner = 53, vocab = 131;
  bool tied = true;     // embedding and head are two uses of one table
  int64_t experts = 0;  // 0: dense
  int64_t active_experts = 2;
  double eps = 1e-6, rope_theta = 1e4;
  DType compute = DType::f32;
};
ModelConfig dense_config(DType compute);
ModelConfig moe_config(DType compute);

struct RunConfig {
  int64_t steps = 2, shards = 4, tokens = 16;  // virtual shards per step, one row of `tokens` each
  int64_t balance = 2;                         // head-tail pairs of the token order, at every layout (N3t)
  double lr = 2e-2, max_norm = 0.5;
};

// Leaf sizes at which the tiny models have tree borders to cut at.
struct TinyLeaves {
  KeyBlockScope keys{4};
  codegen::ContractionLeafForTests contraction{8};
  TokenGrainScope tokens{2};
  ClassLeafScope classes{16};
};

// Degrees of the mesh axes, outermost first. Ranks are numbered with tp fastest.
struct Layout {
  int pp = 1, dp = 1, fsdp = 1, cp = 1, tp = 1;
  int ep = 1;             // experts spread over this many neighbours of the data axis (dp, fsdp)
  bool sequence = false;  // tokens cut over tp outside of the tensor parallel regions
  // Rank-major: a rank owns neighbouring shards and reduces once per step; else every microbatch reduces over ranks.
  bool rank_major = false;
  bool checkpoint = false;           // blocks are computed again in backward, and their parameters gathered again
  bool ring = false;                 // context parallel keys visit chunk by chunk instead of being gathered
  bool rounds_partial_sums = false;  // the mistake that N4 forbids, to see that it is noticed

  int data() const { return dp * fsdp; }
  int ranks() const { return pp * data() * cp * tp; }
  std::string name() const;  // "fsdp2 x tp2"
};

}  // namespace tutti::layouts
