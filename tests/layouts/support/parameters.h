// The parameters of the tiny models: names, shapes, and which part a rank of a layout holds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/layouts/support/config.h"
#include "tutti/core/tree_cut.h"
#include "tutti/tensor/tensor.h"

namespace tutti::layouts {

struct ParameterSpec {
  std::string name;
  Extents sizes;
  int layer = -1;       // -1: embedding; `layers`: what follows the last block
  int expert = -1;      // -1: not of an expert
  int tp_dim = -1;      // dim cut over tp
  int64_t tp_unit = 1;  // elements that stay together in a cut: a head
  int64_t tp_leaf = 1;  // leaf of the sums over that dim, in units
  // Every rank of tp has a part of the gradient although it holds the whole parameter: its heads or its tokens.
  bool partial_over_heads = false;
  bool sums_tokens_of_sequence = false;
};

std::vector<ParameterSpec> parameter_specs(const ModelConfig& config);
// The same values for a name at every layout.
Tensor initial_value(const ParameterSpec& spec);
// The rows or columns that a tp rank holds. UsageError when the cut is not on a tree border.
TreeCut tp_part(const ParameterSpec& spec, int rank, int ranks);
// Dense copy of the elements [part.begin, part.end) of `dim`.
Tensor part_of(const Tensor& whole, int dim, const TreeCut& part);

// One step's data: per virtual shard, in natural order.
struct Batch {
  std::vector<std::vector<int32_t>> tokens, labels;
  int64_t valid = 0;  // labels that count
};
Batch batch_of_step(const ModelConfig& config, const RunConfig& run, int64_t step);

// The position of each token in canonical order: head-tail pairs of chunks, then position (N3t).
std::vector<int64_t> canonical_positions(const RunConfig& run);

}  // namespace tutti::layouts
