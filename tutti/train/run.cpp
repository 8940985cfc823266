#include "tutti/train/run.h"

#include <algorithm>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/nn/module.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/report/run_log.h"
#include "tutti/train/task/task.h"

namespace tutti::train {
namespace {

std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizerConfig& c, std::vector<nn::NamedParameter> parameters,
                                                 optim::StateMemory memory) {
  if (c.name == "sgd")
    return optim::make_sgd(std::move(parameters),
                           optim::SgdOptions{.momentum = c.momentum, .weight_decay = c.weight_decay},
                           std::move(memory));
  return optim::make_adamw(
      std::move(parameters),
      optim::AdamWOptions{.beta1 = c.beta1, .beta2 = c.beta2, .eps = c.eps, .weight_decay = c.weight_decay},
      std::move(memory));
}

}  // namespace

Run::Run(const Config& given, const TrainerOptions& given_options, RunStart given_start, RunData given_data)
    : config(given),
      options(given_options),
      group(options.group),
      rank(group ? group->rank() : 0),
      ranks(group ? group->size() : 1),
      start(std::move(given_start)),
      task(std::move(given_data.task)),
      inputs(std::move(given_data.inputs)),
      model(task->model()),
      tensor(task->divide(group)),
      data_group(tensor.mesh != nullptr ? tensor.data.get() : group),
      experts(model, config.model.load_balance_coeff, group),
      survival(make_survival(options.survivors, group, config, model, experts.record({}).size())),
      rows_per_shard(task->rows_per_shard()),
      end(options.stop_at > 0 ? std::min(options.stop_at, config.training.steps) : config.training.steps) {
  if (auto divided = task->shard(group, tensor, survival->master_memory()))
    sharded = std::make_unique<const parallel::ShardedModule>(std::move(*divided));
  state.seed = static_cast<uint64_t>(config.training.seed);
  seed_all(state.seed);
  if (!sharded) survival->share_masters(model);
  optimizer = make_optimizer(config.optimizer, task->optimized(), survival->state_memory());
  if (!survival->is_begun()) task->initialize();
}

Run::~Run() = default;

void Run::note(const std::string& text) const {
  if (log && !text.empty()) log->note(text);
}

}  // namespace tutti::train
