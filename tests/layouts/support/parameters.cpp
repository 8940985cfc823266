#include "tests/layouts/support/parameters.h"

#include <fmt/format.h>

#include "tutti/core/hash.h"
#include "tutti/ops/slice.h"

namespace tutti::layouts {
namespace {

// Uniform numbers in [-1, 1) from a linear congruential generator, the same on every machine.
class Uniform {
 public:
  explicit Uniform(uint64_t seed) : state_(seed * 2862933555777941757u + 3037000493u) {}
  float operator()() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<float>(static_cast<int32_t>(state_ >> 32)) * 0x1p-31f;
  }
  int64_t below(int64_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state_ >> 33) % static_cast<uint64_t>(n));
  }

 private:
  uint64_t state_;
};

}  // namespace

std::vector<ParameterSpec> parameter_specs(const ModelConfig& c) {
  const int64_t leaf = codegen::contraction_leaf();
  const int64_t classes = std::max<int64_t>(leaf, class_leaf());
  const int last = static_cast<int>(c.layers);
  std::vector<ParameterSpec> specs;
  specs.push_back({.name = "embedding", .sizes = {c.vocab, c.dim}, .tp_dim = 0, .tp_leaf = classes});
  for (int i = 0; i < last; ++i) {
    const auto add = [&](const char* name, const Extents& sizes, const ParameterSpec& how) -> ParameterSpec& {
      ParameterSpec spec = how;
      spec.name = fmt::format("layers.{}.{}", i, name);
      spec.sizes = sizes;
      spec.layer = i;
      return specs.emplace_back(spec);
    };
    const ParameterSpec norm{.sums_tokens_of_sequence = true}, head_norm{.partial_over_heads = true};
    // Heads are cut whole, key/value heads one by one; a query part is that of its key/value heads.
    const ParameterSpec q_rows{.tp_dim = 0, .tp_unit = c.heads / c.kv_heads * c.head_dim};
    const ParameterSpec kv_rows{.tp_dim = 0, .tp_unit = c.head_dim};
    const ParameterSpec q_columns{.tp_dim = 1, .tp_unit = c.heads / c.kv_heads * c.head_dim};
    add("input_norm", {c.dim}, norm);
    add("q", {c.heads * c.head_dim, c.dim}, q_rows);
    add("k", {c.kv_heads * c.head_dim, c.dim}, kv_rows);
    add("v", {c.kv_heads * c.head_dim, c.dim}, kv_rows);
    add("q_norm", {c.head_dim}, head_norm);
    add("k_norm", {c.head_dim}, head_norm);
    add("o", {c.dim, c.heads * c.head_dim}, q_columns);
    add("post_norm", {c.dim}, norm);
    if (c.experts == 0) {
      add("gate", {c.inner, c.dim}, {.tp_dim = 0, .tp_leaf = leaf});
      add("up", {c.inner, c.dim}, {.tp_dim = 0, .tp_leaf = leaf});
      add("down", {c.dim, c.inner}, {.tp_dim = 1, .tp_leaf = leaf});
      continue;
    }
    add("router", {c.experts, c.dim}, {.sums_tokens_of_sequence = true});
    for (int e = 0; e < c.experts; ++e) {
      const auto of_expert = [&](const char* name) { return fmt::format("experts.{}.{}", e, name); };
      add(of_expert("gate").c_str(), {c.inner, c.dim}, {.expert = e, .sums_tokens_of_sequence = true});
      add(of_expert("up").c_str(), {c.inner, c.dim}, {.expert = e, .sums_tokens_of_sequence = true});
      add(of_expert("down").c_str(), {c.dim, c.inner}, {.expert = e, .sums_tokens_of_sequence = true});
    }
  }
  specs.push_back({.name = "norm", .sizes = {c.dim}, .layer = last, .sums_tokens_of_sequence = true});
  if (!c.tied)
    specs.push_back({.name = "head", .sizes = {c.vocab, c.dim}, .layer = last, .tp_dim = 0, .tp_leaf = classes});
  return specs;
}

Tensor initial_value(const ParameterSpec& spec) {
  const bool norm = spec.sizes.size() == 1;
  const Tensor value = Tensor::empty(spec.sizes);
  Uniform uniform(hash64(spec.name.data(), spec.name.size(), 0));
  for (int64_t i = 0; i < value.numel(); ++i)
    value.data<float>()[i] = norm ? 1.0f + 0.25f * uniform() : 0.2f * uniform();
  return value;
}

TreeCut tp_part(const ParameterSpec& spec, int rank, int ranks) {
  const int64_t size = spec.sizes[static_cast<size_t>(spec.tp_dim)];
  if (spec.tp_unit == 1) return tree_cut(size, spec.tp_leaf, rank, ranks, spec.name);
  const TreeCut units = tree_cut(size / spec.tp_unit, spec.tp_leaf, rank, ranks, spec.name);
  const TreeCut part{units.begin * spec.tp_unit, units.end * spec.tp_unit};
  // The sum over the heads' elements must have a border where the heads are cut.
  const TreeCut border = tree_cut(size, codegen::contraction_leaf(), rank, ranks, spec.name);
  TUTTI_CHECK(
      part.begin == border.begin && part.end == border.end,
      "{}: {} heads over {} ranks are cut at element {}, the sum over all {} elements at {}; use a number of heads "
      "that the ranks divide",
      spec.name, size / spec.tp_unit, ranks, part.begin == border.begin ? part.end : part.begin, size,
      part.begin == border.begin ? border.end : border.begin);
  return part;
}

Tensor part_of(const Tensor& whole, int dim, const TreeCut& part) {
  const Tensor view = narrow(whole, dim, part.begin, part.size());
  const Tensor dense = Tensor::empty(view.extents(), view.dtype());
  copy_elements(dense, view);
  return dense;
}

Batch batch_of_step(const ModelConfig& config, const RunConfig& run, int64_t step) {
  Batch batch;
  Uniform uniform(static_cast<uint64_t>(step) + 77);
  for (int64_t s = 0; s < run.shards; ++s) {
    std::vector<int32_t> tokens, labels;
    for (int64_t t = 0; t < run.tokens; ++t) {
      tokens.push_back(static_cast<int32_t>(uniform.below(config.vocab)));
      const bool ignored = uniform.below(7) == 0;
      labels.push_back(ignored ? static_cast<int32_t>(kIgnoreLabel)
                               : static_cast<int32_t>(uniform.below(config.vocab)));
      batch.valid += !ignored;
    }
    batch.tokens.push_back(tokens);
    batch.labels.push_back(labels);
  }
  return batch;
}

std::vector<int64_t> canonical_positions(const RunConfig& run) {
  std::vector<int64_t> positions;
  const int64_t chunks = 2 * run.balance, chunk = run.tokens / chunks;
  for (int64_t pair = 0; pair < run.balance; ++pair) {
    for (const int64_t c : {pair, chunks - 1 - pair}) {
      for (int64_t i = 0; i < chunk; ++i) positions.push_back(c * chunk + i);
    }
  }
  return positions;
}

}  // namespace tutti::layouts
