#include "tutti/nn/moe_router.h"

#include <cmath>
#include <limits>
#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/nn/own_part.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/ops/scatter.h"
#include "tutti/ops/scatter_add.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/topk.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/where.h"

namespace tutti::nn {

ScoreFunction parse_score_function(std::string_view text) {
  if (text == "softmax") return ScoreFunction::softmax;
  if (text == "sigmoid") return ScoreFunction::sigmoid;
  throw UsageError(fmt::format("'{}' is no score function of a router; expected softmax or sigmoid", text));
}

Router::Router(int64_t dim, const RouterOptions& options) : options_(options) {
  const auto [E, K] = std::pair(options.num_experts, options.top_k);
  const int64_t groups = options.num_expert_groups, limit = options.num_limited_groups;
  TUTTI_CHECK(E >= 1, "Router: num_experts is {}; expected at least 1", E);
  TUTTI_CHECK(K >= 1 && K <= E, "Router: top_k is {} of {} experts; expected 1 to {}", K, E, E);
  if (groups != 0) {
    TUTTI_CHECK(groups >= 1 && E % groups == 0 && E / groups >= 2,
                "Router: num_expert_groups is {} for {} experts; expected a divisor that leaves groups of at least 2",
                groups, E);
    TUTTI_CHECK(limit >= 1 && limit <= groups && limit * (E / groups) >= K,
                "Router: num_limited_groups is {} of {} groups of {} experts; expected at most {}, and enough of them "
                "for top_k = {}",
                limit, groups, E / groups, groups, K);
  } else {
    TUTTI_CHECK(limit == 0, "Router: num_limited_groups is {} without groups; give num_expert_groups, too", limit);
  }
  weight = register_parameter("weight", {E, dim}, options.init);
  if (options.scaled) {
    scale = register_parameter("scale", {dim}, Init::ones());
    per_expert_scale = register_parameter("per_expert_scale", {E}, Init::ones());
  }
  expert_bias = register_buffer("expert_bias", zeros({E}));
}

// Experts outside the best groups are set to -infinity.
Tensor Router::limited_to_groups(const Tensor& choice_TE) const {
  const SymInt T = choice_TE.size(0);
  const int64_t groups = options_.num_expert_groups, size = options_.num_experts / groups;
  const Tensor grouped_TGe = reshape(choice_TE, {T, groups, size});
  const Tensor goodness_TG = sum(topk(grouped_TGe, 2).values, {.dims = {2}});
  const Tensor best = topk(goodness_TG, options_.num_limited_groups).indices;
  const Tensor is_out_TG = scatter(ones({T, groups}, DType::boolean), 1, best, zeros(best.sizes(), DType::boolean));
  return reshape(masked_fill(grouped_TGe, reshape(is_out_TG, {T, groups, 1}), -std::numeric_limits<double>::infinity()),
                 choice_TE.sizes());
}

Tensor Router::choose(const Tensor& scores_TE) const {
  const int64_t K = options_.top_k;
  if (options_.force_load_balance) {
    const SymInt T = scores_TE.size(0);
    return reshape(remainder(arange(T * K), options_.num_experts), {T, K});
  }
  Tensor choice_TE = add(scores_TE, bias());
  if (options_.num_expert_groups > 0) choice_TE = limited_to_groups(choice_TE);
  const Tensor chosen = topk(choice_TE, K).indices;
  if (K == 1) return chosen;
  // The bias may have brought another order: columns are those of the scores again, equal ones in order of the experts.
  const Tensor is_left_out =
      scatter(ones(scores_TE.sizes(), DType::boolean), 1, chosen, zeros(chosen.sizes(), DType::boolean));
  return topk(masked_fill(scores_TE, is_left_out, -std::numeric_limits<double>::infinity()), K).indices;
}

Tensor Router::bias() const { return own_part(expert_bias.use()); }

Tensor Router::scores_of(const Tensor& x_TD) const {
  Tensor read_TD = x_TD;
  if (scale) {
    const double by = 1 / std::sqrt(static_cast<double>(scale.numel()));
    read_TD = mul(rms_norm(x_TD, own_part(scale, Placement::partial()), options_.norm_eps), by);
  }
  const Tensor logits_TE = matmul(read_TD, transpose(own_part(weight, Placement::partial()), 0, 1),
                                  {.out_dtype = compute_dtype(x_TD.dtype())});
  return options_.score_func == ScoreFunction::softmax ? softmax(logits_TE, -1) : sigmoid(logits_TE);
}

Routing Router::forward(const Tensor& x_TD) const {
  const Tensor scores_TE = scores_of(x_TD);
  Routing routing;
  {
    const NoGradScope choices_have_no_gradient;
    routing.expert_ids_TK = choose(detach(scores_TE));
    const SymInt slots = x_TD.size(0) * options_.top_k;
    routing.tokens_per_expert_E = scatter_add(zeros({options_.num_experts}, DType::i64), 0,
                                              reshape(routing.expert_ids_TK, {slots}), ones({slots}, DType::i64));
  }
  Tensor weights_TK = gather(scores_TE, 1, routing.expert_ids_TK);
  Tensor sum_T1;
  if (options_.route_norm) sum_T1 = add(sum(weights_TK, {.dims = {1}, .keepdim = true}), 1e-20);
  // Scaled before they are chosen, so that the gradient of the scale sums over tokens as all gradients do.
  if (per_expert_scale) {
    const Tensor scale_TE = expand(own_part(per_expert_scale, Placement::partial()), scores_TE.sizes());
    weights_TK = gather(mul(scores_TE, cast(scale_TE, scores_TE.dtype())), 1, routing.expert_ids_TK);
  }
  if (options_.route_norm) weights_TK = truediv(weights_TK, sum_T1);
  if (options_.route_scale != 1) weights_TK = mul(weights_TK, options_.route_scale);
  routing.weights_TK = weights_TK;
  return routing;
}

}  // namespace tutti::nn
