// Forward and backward of one virtual shard, the unit that is repeated within a step, eager or compiled.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tutti/autograd/use_sink.h"
#include "tutti/graph/compiled.h"
#include "tutti/models/token_batch.h"

namespace tutti::dist {
class DeviceMesh;
using Mesh = std::shared_ptr<const DeviceMesh>;
}  // namespace tutti::dist

namespace tutti::train {

class ShardStep {
 public:
  // `model` and `sink`, which gets the gradients of its parameters use by use, must outlive this.
  // activation_memory_budget: see CompileOptions, as for `async_products`, which are its joined ones; used if compiled.
  // `mesh`: of the ranks that divide the model (tensor_ranks.h).
  ShardStep(const models::LanguageModel& model, UseSink& sink, const models::ForwardOptions& forward, bool compiled,
            double activation_memory_budget = 1.0, const dist::Mesh& mesh = {}, bool async_products = false);

  // labels: i32 [tokens]. scale: f32 [tokens], the cotangent of each token's loss. Returns the losses, one per token, 0
  // where the label is ignored. The bits are the same, compiled or not.
  Tensor run(const models::TokenBatch& batch, const Tensor& labels, const Tensor& scale) const {
    return run_(batch, labels, scale);
  }
  // Statistics and description of the compiled code; empty when not compiled.
  CompileStatistics statistics() const { return statistics_ ? statistics_() : CompileStatistics{}; }
  std::string explain() const { return explain_ ? explain_() : ""; }

 private:
  std::function<Tensor(const models::TokenBatch&, const Tensor&, const Tensor&)> run_;
  std::function<CompileStatistics()> statistics_;
  std::function<std::string()> explain_;
};

}  // namespace tutti::train
