#include "tutti/train/step/shard_step.h"

#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/models/language_model.h"
#include "tutti/runtime/trace/trace_context.h"
#include "tutti/train/step/tensor_ranks.h"

template <>
struct tutti::graph::Fields<tutti::models::TokenBatch> {
  static void visit(auto& batch, auto& visit) {
    visit(batch.tokens), visit(batch.positions), visit(batch.first_key), visit(batch.rows);
  }
};

namespace tutti::train {

ShardStep::ShardStep(const models::LanguageModel& model, UseSink& sink, const models::ForwardOptions& forward,
                     bool compiled, double activation_memory_budget, const dist::Mesh& mesh, bool async_products) {
  const auto step = [&model, &sink, forward, mesh](const models::TokenBatch& batch, const Tensor& labels,
                                                   const Tensor& scale) {
    const Tensor losses = losses_of(model, batch, labels, forward, mesh);
    backward(losses, scale, {.sink = &sink});
    return detach(losses);
  };
  if (!compiled) {
    run_ = step;
    return;
  }
  const auto function = compile(step, {.name = "shard step",
                                       .activation_memory_budget = activation_memory_budget,
                                       .collectives = {.join_products = async_products}});
  run_ = function;
  statistics_ = [function] { return function.statistics(); };
  explain_ = [function] { return function.explain(); };
}

}  // namespace tutti::train
