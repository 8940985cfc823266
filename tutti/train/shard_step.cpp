#include "tutti/train/shard_step.h"

#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/models/language_model.h"
#include "tutti/runtime/trace/trace_context.h"

template <>
struct tutti::graph::Fields<tutti::models::TokenBatch> {
  static void visit(auto& batch, auto& visit) { visit(batch.tokens), visit(batch.positions), visit(batch.first_key), visit(batch.rows); }
};

namespace tutti::train {

ShardStep::ShardStep(const models::LanguageModel& model, UseSink& sink, const models::ForwardOptions& forward, bool compiled, double activation_memory_budget) {
  const auto step = [&model, &sink, forward](const models::TokenBatch& batch, const Tensor& labels, const Tensor& scale) {
    const Tensor losses = model.losses(batch, labels, forward);
    backward(losses, scale, {.sink = &sink});
    return detach(losses);
  };
  if (!compiled) {
    run_ = step;
    return;
  }
  const auto function = compile(step, {.name = "shard step", .activation_memory_budget = activation_memory_budget});
  run_ = function;
  statistics_ = [function] { return function.statistics(); };
  explain_ = [function] { return function.explain(); };
}

}  // namespace tutti::train
