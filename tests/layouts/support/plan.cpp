#include "tests/layouts/support/plan.h"

namespace tutti::layouts {
namespace {

double local_numel(const Place& place, const ParameterSpec& spec) {
  double numel = 1;
  for (const int64_t size : spec.sizes) numel *= static_cast<double>(size);
  if (spec.tp_dim < 0) return numel;
  const TreeCut part = tp_part(spec, place.tp.rank(), place.tp.size());
  return numel * static_cast<double>(part.size()) / static_cast<double>(spec.sizes[static_cast<size_t>(spec.tp_dim)]);
}

double shards_of_rank(const RunConfig& run, const Place& place) {
  return static_cast<double>(run.steps * run.shards) / place.data.size();
}

int layers_of_stage(const ModelConfig& config, const Place& place) {
  return static_cast<int>(tree_cut(config.layers, 1, place.pp.rank(), place.pp.size(), "layers").size());
}

// Bytes per element sent: of a sum that everybody gets, of one where everybody gets a part, of a gather of `n` bytes
// each.
double all_reduce(const Axis& a, double n) { return 2 * (a.size() - 1.0) / a.size() * n; }
double reduce_scatter(const Axis& a, double n) { return (a.size() - 1.0) / a.size() * n; }
double gather(const Axis& a, double n) { return (a.size() - 1.0) * n; }

}  // namespace

double planned_flops(const ModelConfig& c, const RunConfig& run, const Place& place,
                     const std::vector<ParameterSpec>& held) {
  const double tokens = static_cast<double>(place.context_part.size()),
               local = static_cast<double>(place.local_tokens());
  double per_shard = 0;
  for (const ParameterSpec& spec : held) {
    if (spec.sizes.size() < 2) continue;
    const bool table_only = spec.layer < 0 && !(c.tied && place.last_stage());
    if (table_only) continue;
    // A product of t tokens with a weight of n elements: 2 t n forward, twice that backward.
    double rows = spec.tp_dim >= 0 ? tokens : local;
    if (spec.expert >= 0)
      rows = local * static_cast<double>(c.active_experts * place.ep.size()) / static_cast<double>(c.experts);
    const bool twice = place.layout.checkpoint && spec.layer >= 0 && spec.layer < c.layers;
    per_shard += (twice ? 8 : 6) * rows * local_numel(place, spec);
  }
  const double heads = static_cast<double>(c.heads) / place.tp.size();
  const double pairs = tokens * static_cast<double>(run.tokens);
  per_shard += layers_of_stage(c, place) * 2.0 * ((place.layout.checkpoint ? 4 : 2) + 5) * heads * pairs *
               static_cast<double>(c.head_dim);
  return per_shard * shards_of_rank(run, place);
}

double planned_wire_bytes(const ModelConfig& c, const RunConfig& run, const Place& place,
                          const std::vector<ParameterSpec>& held) {
  const bool sequence = place.layout.sequence;
  const double tokens = static_cast<double>(place.context_part.size()),
               local = static_cast<double>(place.local_tokens());
  const double item = static_cast<double>(itemsize(c.compute)), D = static_cast<double>(c.dim);
  // A partial sum over tp of all tokens, and the tokens of all sequence parts; of D features.
  const double sum_f32 = sequence ? reduce_scatter(place.tp, tokens * D * 4) : all_reduce(place.tp, tokens * D * 4);
  const double tokens_once = sequence ? gather(place.tp, local * D * item) : 0;
  const int layers = layers_of_stage(c, place);
  const bool dense = c.experts == 0;
  const double forwards = place.layout.checkpoint ? 2 : 1;
  // Forward: gather before and sum after attention (and the dense feed-forward). Backward: one sum per column-parallel
  // product, a gather of the cotangent per row-parallel one.
  const double regions = dense ? 2 : 1;
  double per_shard =
      layers * (forwards * regions * (tokens_once + sum_f32) + regions * tokens_once + (dense ? 5 : 3) * sum_f32);
  if (place.first_stage()) per_shard += sum_f32 + tokens_once;
  if (place.last_stage()) per_shard += tokens_once + sum_f32 + gather(place.tp, 3 * tokens * 4);
  const double kv = tokens * static_cast<double>(c.kv_heads) / place.tp.size() * static_cast<double>(c.head_dim);
  per_shard +=
      layers * 2 * (forwards * gather(place.cp, kv * item) + reduce_scatter(place.cp, kv * place.cp.size() * 4));
  if (!place.last_stage()) per_shard += local * D * item;
  if (!place.first_stage()) per_shard += local * D * 4;  // cotangents are sent in f32
  if (!dense &&
      place.ep.size() > 1) {  // rows there and back, forward and backward; two numbers per row and one per rank
    const double rows = local * static_cast<double>(c.active_experts) * (place.ep.size() - 1) / place.ep.size();
    per_shard +=
        layers * (rows * (forwards * (2 * D * item + 2 * 8) + 2 * D * item) + forwards * (place.ep.size() - 1) * 8);
  }
  double per_step = 0;
  for (const ParameterSpec& spec : held) {
    const double bytes = local_numel(place, spec) * 4;
    const int uses = spec.layer < 0 && c.tied && place.pp.size() == 1 ? 2 : 1;
    const bool tokens_over_tp = sequence && spec.sums_tokens_of_sequence;
    const double shards_in_gradient = spec.expert >= 0 ? place.ep.size() : 1;
    double each = 0;
    if (spec.partial_over_heads) {  // per head over cp, then heads over tp
      const double heads =
          static_cast<double>(spec.name.find("q_norm") != std::string::npos ? c.heads : c.kv_heads) / place.tp.size();
      each += all_reduce(place.tp, bytes) + all_reduce(place.cp, heads * bytes);
    } else {
      each += (tokens_over_tp ? all_reduce(place.tp, bytes) : 0) + all_reduce(place.cp, bytes);
      each *= shards_in_gradient;
    }
    const bool expert = spec.expert >= 0;
    double stored = bytes;
    if (const Axis* storage = place.storage_axis(expert)) {
      const int64_t numel = static_cast<int64_t>(bytes) / 4;
      const double sent = 4 * static_cast<double>(largest_storage_part(numel, storage->size()));
      stored = 4 * static_cast<double>(storage_part(numel, storage->rank(), storage->size()).size());
      each += reduce_scatter(*storage, storage->size() * sent) + (expert ? 0 : all_reduce(place.dp, stored));
      const bool in_block = spec.layer >= 0 && spec.layer < c.layers;
      each += (in_block ? forwards : 1) * gather(*storage, sent);
    } else if (!place.layout.rank_major) {
      each += all_reduce(expert ? place.expert_data : place.data, bytes);
    }
    per_shard += uses * each;
    if (spec.layer < 0 && c.tied && place.pp.size() > 1) per_step += gather(place.pp, stored);
  }
  return per_shard * shards_of_rank(run, place) + per_step * static_cast<double>(run.steps);
}

}  // namespace tutti::layouts
