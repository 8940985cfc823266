#include "tutti/train/run.h"

#include <algorithm>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/io/token_dataset.h"
#include "tutti/models/decoder_config.h"
#include "tutti/nn/module.h"
#include "tutti/optim/optimizer.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/report/run_log.h"
#include "tutti/train/step/run_model.h"
#include "tutti/train/step/shard_model.h"

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
      tokenizer(std::move(given_data.tokenizer)),
      data(std::make_unique<TokenDataset>(std::move(given_data.corpus), *tokenizer,
                                          TokenDatasetOptions{.sequence_length = config.data.sequence_length,
                                                              .validation_fraction = config.data.validation_fraction,
                                                              .seed = static_cast<uint64_t>(config.training.seed)})),
      inputs(std::move(given_data.inputs)),
      model(build_model(config, start.continues() ? start.path : std::filesystem::path())),
      tensor(divide_model(*model, config.parallelism, group)),
      data_group(tensor.mesh != nullptr ? tensor.data.get() : group),
      experts(*model, config.model.load_balance_coeff, group),
      survival(make_survival(options.survivors, group, config, *model, experts.record({}).size())),
      rows_per_shard(config.training.global_batch_tokens / config.data.sequence_length /
                     config.numerics.virtual_shards),
      end(options.stop_at > 0 ? std::min(options.stop_at, config.training.steps) : config.training.steps) {
  if (auto divided = shard_model(*model, config.parallelism, group, tensor, survival->master_memory()))
    sharded = std::make_unique<const parallel::ShardedModule>(std::move(*divided));
  TUTTI_CHECK(tokenizer->vocab_size() <= model->vocab_size(),
              "the model {} has a vocabulary of {}, the tokenizer '{}' needs {}; use a smaller tokenizer",
              model->config().name(), model->vocab_size(), tokenizer->name(), tokenizer->vocab_size());
  state.seed = static_cast<uint64_t>(config.training.seed);
  seed_all(state.seed);
  if (!sharded) survival->share_masters(*model);
  optimizer = make_optimizer(config.optimizer, model->named_parameters(), survival->state_memory());
  if (!survival->is_begun()) nn::initialize(*model);
}

Run::~Run() = default;

int64_t Run::validation_rows() const {
  return config.validation.steps < 0 ? data->validation_row_count() : config.validation.steps * rows();
}

void Run::note(const std::string& text) const {
  if (log && !text.empty()) log->note(text);
}

}  // namespace tutti::train
