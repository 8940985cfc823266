#include "tests/layouts/support/one_rank.h"

#include <fmt/format.h>

#include "tests/layouts/support/meter.h"
#include "tests/layouts/support/moe.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/embedding.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/optimizer_step.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/ops/rope.h"
#include "tutti/ops/slice.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/parallel/gradient_exchange.h"
#include "tutti/parallel/gradient_tree.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::layouts {
namespace {

class OneRank {
 public:
  OneRank(const ModelConfig& config, const RunConfig& run)
      : c_(config),
        run_(run),
        positions_(canonical_positions(run)),
        natural_(positions_.size()),
        rope_(rope_table(run.tokens, config.head_dim, config.rope_theta)) {
    for (size_t i = 0; i < positions_.size(); ++i)
      natural_[static_cast<size_t>(positions_[i])] = static_cast<int64_t>(i);
    for (const ParameterSpec& spec : parameter_specs(config)) {
      names_.push_back(spec.name);
      weights_[spec.name] = requires_grad_(initial_value(spec));
    }
  }

  // The loss of each token of a virtual shard, in canonical order.
  Tensor losses(const std::vector<int32_t>& tokens, const std::vector<int32_t>& labels) const {
    const Tensor cos = index_select(rope_.cos, 0, index_tensor(positions_)),
                 sin = index_select(rope_.sin, 0, index_tensor(positions_));
    Tensor x = embedding(used("embedding"), in_order(tokens));
    for (int64_t i = 0; i < c_.layers; ++i) x = block(fmt::format("layers.{}.", i), x, cos, sin);
    x = rms_norm(x, used("norm"), c_.eps);
    const Tensor logits = matmul(x, transpose(used(c_.tied ? "embedding" : "head"), 0, 1), {.out_dtype = DType::f32});
    return cross_entropy(logits, in_order(labels));
  }

  RankRecord train() {
    RankRecord record;
    Meter meter;
    std::map<std::string, std::pair<Tensor, Tensor>> moments;
    for (const auto& name : names_)
      moments[name] = {zeros_like(detach(weights_[name])), zeros_like(detach(weights_[name]))};
    for (int64_t step = 0; step < run_.steps; ++step) {
      const Batch batch = batch_of_step(c_, run_, step);
      ExactSum loss(ExactTerm::value);
      std::vector<Tensor> parameters;
      for (const auto& name : names_) parameters.push_back(weights_[name]);
      parallel::GradientTree tree(parameters);
      for (size_t s = 0; s < batch.tokens.size(); ++s) {
        tree.begin(static_cast<int64_t>(s));
        const Tensor losses_T = losses(batch.tokens[s], batch.labels[s]);
        loss.add({losses_T.data<float>(), static_cast<size_t>(losses_T.numel())});
        backward(losses_T, full_like(detach(losses_T), 1.0 / static_cast<double>(batch.valid)), {.sink = &tree});
        tree.end();
      }
      const std::vector<Tensor> grads =
          parallel::reduce_gradients(tree.take(), parallel::consecutive_shards(run_.shards, 1), nullptr,
                                     parallel::GradientPlacements(parameters.size(), 0, 1));
      StepRecord result;
      result.loss = static_cast<float>(loss.value() / static_cast<double>(batch.valid));
      result.norm = optim::norm_of(optim::square_sum(grads));
      const double scale = optim::clip_scale(result.norm, run_.max_norm);
      NoGradScope no_grad;
      for (size_t p = 0; p < names_.size(); ++p) {
        const std::string& name = names_[p];
        result.grads[name] = to_contiguous(grads[p]);
        adamw_step_(detach(weights_[name]), result.grads[name], moments[name].first, moments[name].second,
                    {.lr = run_.lr, .step = step + 1, .grad_scale = scale});
      }
      record.steps.push_back(std::move(result));
    }
    for (const auto& name : names_) record.weights[name] = detach(weights_[name]);
    record.usage.flops = meter.flops();
    return record;
  }

 private:
  Tensor used(const std::string& name) const { return cast(weights_.at(name), c_.compute); }
  Tensor in_order(const std::vector<int32_t>& values) const {
    std::vector<int32_t> ordered;
    for (const int64_t p : positions_) ordered.push_back(values[static_cast<size_t>(p)]);
    return Tensor::of(ordered);
  }

  Tensor heads_of(const std::string& layer, const char* which, const Tensor& n_TD, int64_t heads, const Tensor& cos,
                  const Tensor& sin) const {
    const Tensor x_THE = reshape(linear(n_TD, used(layer + which)), {run_.tokens, heads, c_.head_dim});
    const Tensor weight = expand(used(layer + which + "_norm"), {heads, c_.head_dim});
    return rope(rms_norm(x_THE, weight, c_.eps), cos, sin);
  }

  Tensor block(const std::string& layer, const Tensor& x, const Tensor& cos, const Tensor& sin) const {
    const int64_t T = run_.tokens, E = c_.head_dim;
    const Tensor n = rms_norm(x, used(layer + "input_norm"), c_.eps);
    const Tensor q = heads_of(layer, "q", n, c_.heads, cos, sin), k = heads_of(layer, "k", n, c_.kv_heads, cos, sin);
    const Tensor v = reshape(linear(n, used(layer + "v")), {T, c_.kv_heads, E});
    // Keys lie in the order of their positions, queries in canonical order.
    const auto keys = [&](const Tensor& t) { return reshape(permuted_rows(t, natural_), {1, T, c_.kv_heads, E}); };
    std::vector<int32_t> last(positions_.begin(), positions_.end());
    const Tensor attended =
        sdpa(reshape(q, {1, T, c_.heads, E}), keys(k), keys(v), {.last_key = Tensor::of(last, {1, T})});
    const Tensor h = add(x, linear(reshape(attended, {T, c_.heads * E}), used(layer + "o")));
    const Tensor m = rms_norm(h, used(layer + "post_norm"), c_.eps);
    return add(h, c_.experts == 0 ? dense(layer, m) : moe(layer, m));
  }

  Tensor dense(const std::string& layer, const Tensor& m) const {
    const Tensor gate = linear(m, used(layer + "gate")), up = linear(m, used(layer + "up"));
    return linear(swiglu(gate, up), used(layer + "down"));
  }

  Tensor moe(const std::string& layer, const Tensor& m) const {
    const Routing routing = route(c_, m, weights_.at(layer + "router"));
    // Rows by expert, then by token.
    std::vector<int64_t> slots;
    std::vector<TokenRanges> counts;
    for (int64_t e = 0; e < c_.experts; ++e) {
      std::vector<int32_t> in_range(static_cast<size_t>(run_.tokens / token_grain()));
      for (size_t s = 0; s < routing.experts.size(); ++s) {
        if (routing.experts[s] != e) continue;
        slots.push_back(static_cast<int64_t>(s));
        ++in_range[s / static_cast<size_t>(c_.active_experts * token_grain())];
      }
      counts.push_back({in_range});
    }
    const Tensor rows = rows_of_slots(m, c_.active_experts, slots);
    std::vector<Tensor> outputs;
    int64_t begin = 0;
    for (int64_t e = 0; e < c_.experts; ++e) {
      const int64_t count = rows_in(counts[static_cast<size_t>(e)]);
      const std::string name = fmt::format("{}experts.{}.", layer, e);
      const ExpertWeights weights{used(name + "gate"), used(name + "up"), used(name + "down")};
      outputs.push_back(expert_forward(narrow(rows, 0, begin, count), weights, counts[static_cast<size_t>(e)]));
      begin += count;
    }
    std::vector<int64_t> row_of_slot(slots.size());
    for (size_t i = 0; i < slots.size(); ++i) row_of_slot[static_cast<size_t>(slots[i])] = static_cast<int64_t>(i);
    return combine_slots(permuted_rows(cat(outputs, 0), row_of_slot), routing.weights_TK, c_.active_experts);
  }

  ModelConfig c_;
  RunConfig run_;
  std::vector<int64_t> positions_, natural_;
  RopeTable rope_;
  std::vector<std::string> names_;
  std::map<std::string, Tensor> weights_;
};

}  // namespace

RankRecord run_one_rank(const ModelConfig& config, const RunConfig& run) {
  RankContext context({.threads = 1});
  const RankContext::Scope scope(context);
  return OneRank(config, run).train();
}

}  // namespace tutti::layouts
