// How the ranks of a mesh divide a decoder (docs/tensor_parallel.md): data beside the model, which does not know of it.
//
//   check_tensor_parallel(config, 4);
//   parallel::parallelize_module(model, mesh, decoder_plan(config));
//   nn::initialize(model);
//   model.losses(replicated(batch, mesh), replicated(labels, mesh));   // distributed tensors, with the bits of one
//   rank
#pragma once

#include <string>
#include <vector>

#include "tutti/models/decoder.h"
#include "tutti/ops/sum_to.h"
#include "tutti/parallel/tensor_parallel.h"

namespace tutti::models {

// Heads, hidden features and the vocabulary are cut over the ranks; norms are on all of them. With `sequence_parallel`
// the tokens of a batch are cut between the products, and norms, dropout and residuals work on a part of them. Mixtures
// of experts work on a part in either case; the ranks of parallel::expert_parallel(), which is called first, have their
// experts.
parallel::ParallelPlan decoder_plan(const DecoderConfig& config, bool sequence_parallel = false);

// The bound on the degree of tensor parallelism in strict mode, where sums are cut at borders of their trees, and how
// far.
struct DegreeLimit {
  std::string what;  // "3 key/value heads"
  int64_t largest;   // a power of two
};
// `tokens`: those of a batch, which sequence parallelism and mixtures of experts cut, 0: there are none. `grain`: so
// many of them form a leaf of a sum over tokens.
std::vector<DegreeLimit> tensor_parallel_limits(const DecoderConfig& config, int64_t tokens = 0,
                                                int64_t grain = token_grain());
int64_t largest_tensor_parallel_degree(const DecoderConfig& config, int64_t tokens = 0, int64_t grain = token_grain());
// UsageError, naming what bounds it and the largest legal degree, unless that many ranks can divide the model with the
// bits of one rank.
void check_tensor_parallel(const DecoderConfig& config, int64_t degree, int64_t tokens = 0,
                           int64_t grain = token_grain());
// UsageError, naming them, unless so many ranks divide the key/value heads of every layer: all that the division of
// quantized weights needs (parallel/tensor_parallel.h).
void check_divided_heads(const DecoderConfig& config, int64_t degree);

// The batch, or labels, which every rank of the mesh has, as distributed tensors.
Tensor replicated(const Tensor& t, const dist::Mesh& mesh);
TokenBatch replicated(const TokenBatch& batch, const dist::Mesh& mesh);

}  // namespace tutti::models
