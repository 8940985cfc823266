#include "tests/layouts/support/parallel_model.h"

#include <fmt/format.h>

#include "tests/layouts/support/expert_exchange.h"
#include "tests/layouts/support/function.h"
#include "tests/layouts/support/moe.h"
#include "tests/layouts/support/ring_attention.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rms_norm.h"

namespace tutti::layouts {

ParallelModel::ParallelModel(const ModelConfig& config, const RunConfig& run, const Place& place)
    : c_(config),
      run_(run),
      place_(place),
      positions_(canonical_positions(run)),
      rope_(rope_table(run.tokens, config.head_dim, config.rope_theta)) {
  const TreeCut layers = tree_cut(c_.layers, 1, place.pp.rank(), place.pp.size(), "layers over pipeline stages");
  first_layer_ = static_cast<int>(layers.begin);
  end_layer_ = static_cast<int>(layers.end);
  for (const ParameterSpec& spec : parameter_specs(config)) {
    if (holds(spec)) specs_.push_back(spec);
  }
}

bool ParallelModel::holds(const ParameterSpec& spec) const {
  if (spec.layer < 0) return place_.first_stage() || (place_.last_stage() && c_.tied);
  if (spec.layer == c_.layers) return place_.last_stage();
  if (spec.layer < first_layer_ || spec.layer >= end_layer_) return false;
  if (spec.expert < 0) return true;
  const TreeCut experts = tree_cut(c_.experts, 1, place_.ep.rank(), place_.ep.size(), "experts");
  return spec.expert >= experts.begin && spec.expert < experts.end;
}

Tensor ParallelModel::used(const std::string& name) const { return cast(parameter(name), c_.compute); }

TreeCut ParallelModel::vocabulary_part() const {
  return tp_part(parameter_specs(c_)[0], place_.tp.rank(), place_.tp.size());
}

std::vector<int32_t> ParallelModel::in_order(const std::vector<int32_t>& values) const {
  std::vector<int32_t> ordered;
  for (int64_t i = place_.context_part.begin; i < place_.context_part.end; ++i)
    ordered.push_back(values[static_cast<size_t>(positions_[static_cast<size_t>(i)])]);
  return ordered;
}

Tensor ParallelModel::forward(const Tensor& x_TD, const std::vector<int32_t>& tokens,
                              const std::vector<int32_t>& labels) const {
  const Tensor at = index_tensor(
      std::span(positions_)
          .subspan(static_cast<size_t>(place_.context_part.begin), static_cast<size_t>(place_.context_part.size())));
  const Angles angles{index_select(rope_.cos, 0, at), index_select(rope_.sin, 0, at)};
  Tensor x = x_TD;
  if (place_.first_stage())
    x = vocabulary_parallel_embedding(place_, used("embedding"), in_order(tokens), vocabulary_part());
  for (int i = first_layer_; i < end_layer_; ++i) {
    const auto run = [this, i, angles](std::span<const Tensor> inputs) {
      return block(fmt::format("layers.{}.", i), inputs[0], angles);
    };
    x = place_.layout.checkpoint ? checkpoint(run, std::span(&x, 1)) : run(std::span(&x, 1));
  }
  if (!place_.last_stage()) return x;
  x = rms_norm(x, used("norm"), c_.eps);
  const Tensor logits =
      column_parallel(place_, x, all_tokens(place_, x), used(c_.tied ? "embedding" : "head"), DType::f32);
  return vocabulary_parallel_loss(place_, logits, in_order(labels), vocabulary_part());
}

Tensor ParallelModel::heads_of(const std::string& layer, const char* which, const Tensor& n, const Tensor& n_all,
                               const Angles& angles) const {
  const Tensor x_THE =
      reshape(column_parallel(place_, n, n_all, used(layer + which), c_.compute), {n_all.size(0), -1, c_.head_dim});
  // Tokens of all context parallel ranks are summed per head before heads are summed.
  const Tensor weight = with_cotangent(expand(used(layer + which + "_norm"), {x_THE.size(1), c_.head_dim}),
                                       [this](const Tensor& g) { return place_.cp.all_reduce(g); });
  return rope(rms_norm(x_THE, weight, c_.eps), angles.cos, angles.sin);
}

Tensor ParallelModel::block(const std::string& layer, const Tensor& x, const Angles& angles) const {
  const Tensor n = rms_norm(x, used(layer + "input_norm"), c_.eps), n_all = all_tokens(place_, n);
  const Tensor q = heads_of(layer, "q", n, n_all, angles), k = heads_of(layer, "k", n, n_all, angles);
  const Tensor v =
      reshape(column_parallel(place_, n, n_all, used(layer + "v"), c_.compute), {n_all.size(0), -1, c_.head_dim});
  const Tensor attended = place_.layout.ring ? ring_attention(place_, q, k, v, positions_)
                                             : context_parallel_attention(place_, q, k, v, positions_);
  const Tensor h = add(x, row_parallel(place_, reshape(attended, {n_all.size(0), -1}), used(layer + "o")));
  const Tensor m = rms_norm(h, used(layer + "post_norm"), c_.eps);
  return add(h, c_.experts == 0 ? dense(layer, m) : moe(layer, m));
}

Tensor ParallelModel::dense(const std::string& layer, const Tensor& m) const {
  const Tensor m_all = all_tokens(place_, m);
  const Tensor gate = column_parallel(place_, m, m_all, used(layer + "gate"), c_.compute);
  const Tensor up = column_parallel(place_, m, m_all, used(layer + "up"), c_.compute);
  return row_parallel(place_, swiglu(gate, up), used(layer + "down"));
}

Tensor ParallelModel::moe(const std::string& layer, const Tensor& m) const {
  const Routing routing = route(c_, m, parameter(layer + "router"));
  const ExpertExchange exchange(c_, place_, routing.experts);
  const Tensor rows = exchange.dispatch(m);
  const Tensor outputs = exchange.run_experts(rows, [&](int64_t expert) {
    const std::string name = fmt::format("{}experts.{}.", layer, expert);
    return ExpertWeights{used(name + "gate"), used(name + "up"), used(name + "down")};
  });
  return combine_slots(exchange.bring_back(outputs), routing.weights_TK, c_.active_experts);
}

}  // namespace tutti::layouts
