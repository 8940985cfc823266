#include "tutti/train/task/text_task.h"

#include "tutti/core/error.h"
#include "tutti/models/decoder_config.h"
#include "tutti/ops/creation.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/parallel/shards.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/data/batch.h"
#include "tutti/train/data/run_tokenizer.h"
#include "tutti/train/run.h"
#include "tutti/train/sample.h"
#include "tutti/train/step/evaluate.h"
#include "tutti/train/step/run_model.h"
#include "tutti/train/step/shard_model.h"
#include "tutti/train/step/shard_step.h"

namespace tutti::train {
namespace {

class TextWork final : public ShardWork {
 public:
  TextWork(TokenDataset& data, int64_t rows_per_shard, const models::LanguageModel& model, UseSink& sink,
           const Config& config, const dist::Mesh& mesh)
      : data_(data),
        rows_per_shard_(rows_per_shard),
        step_(model, sink, forward_options(config), config.training.compile,
              config.activation_checkpoint.mode == "memory_budget" ? config.activation_checkpoint.memory_budget : 1.0,
              mesh, config.parallelism.enable_async_tensor_parallel) {}

  int64_t read(int64_t first_row, std::span<const int64_t> shards) override {
    rows_.clear();
    next_ = 0;
    int64_t valid = 0;
    for (const int64_t s : shards) {
      rows_.push_back(data_.training_rows(first_row + s * rows_per_shard_, rows_per_shard_));
      valid += count_valid(rows_.back());
    }
    return valid;
  }
  Tensor run(int64_t, double scale) override {
    const TokenRows& rows = rows_[next_++];
    const Tensor labels = labels_of(rows);
    return step_.run(to_batch(rows), labels, full(labels.sizes(), scale));
  }

 private:
  TokenDataset& data_;
  const int64_t rows_per_shard_;
  const ShardStep step_;
  std::vector<TokenRows> rows_;  // of the step's shards
  size_t next_ = 0;
};

}  // namespace

TextTask::TextTask(const Config& config, std::unique_ptr<Tokenizer> tokenizer, TokenCorpus corpus,
                   const std::filesystem::path& run)
    : config_(config),
      tokenizer_(std::move(tokenizer)),
      data_(std::move(corpus), *tokenizer_,
            TokenDatasetOptions{.sequence_length = config.data.sequence_length,
                                .validation_fraction = config.data.validation_fraction,
                                .seed = static_cast<uint64_t>(config.training.seed)}),
      model_(build_model(config, run)) {
  TUTTI_CHECK(tokenizer_->vocab_size() <= model_->vocab_size(),
              "the model {} has a vocabulary of {}, the tokenizer '{}' needs {}; use a smaller tokenizer",
              model_->config().name(), model_->vocab_size(), tokenizer_->name(), tokenizer_->vocab_size());
}

TensorRanks TextTask::divide(comm::ProcessGroup* group) { return divide_model(*model_, config_.parallelism, group); }

std::optional<parallel::ShardedModule> TextTask::shard(comm::ProcessGroup* group, const TensorRanks& divided,
                                                       std::function<Tensor(const nn::NamedParameter&)> memory) {
  return shard_model(*model_, config_.parallelism, group, divided, std::move(memory));
}

std::string TextTask::load_first_weights(const std::filesystem::path& path) {
  return train::load_first_weights(path, *model_);
}

void TextTask::keep(const std::filesystem::path& run) const {
  save_run_tokenizer(run, *tokenizer_);
  keep_description(config_, run);
}

int64_t TextTask::rows_per_shard() const {
  return config_.training.global_batch_tokens / config_.data.sequence_length / config_.numerics.virtual_shards;
}

std::unique_ptr<ShardWork> TextTask::make_work(const Run& run, parallel::Shards& shards) {
  return std::make_unique<TextWork>(data_, rows_per_shard(), *model_, *shards.sink(), config_, run.tensor.mesh);
}

int64_t TextTask::validation_rows() const {
  return config_.validation.steps < 0 ? data_.validation_row_count()
                                      : config_.validation.steps * config_.numerics.virtual_shards * rows_per_shard();
}

void TextTask::validate(const Run& run, StepRecord& record) const {
  std::optional<parallel::UnshardedScope> whole;  // ranks read unequally often
  if (run.sharded) whole.emplace(*run.sharded);
  record.val_bits_per_byte = bits_per_byte(*model_, data_, *tokenizer_, validation_rows(), forward_options(config_),
                                           run.tensor.evaluators(run.group), run.tensor.mesh);
}

std::optional<Baseline> TextTask::baseline(const Run&) const {
  const double order2 = order2_bits_per_byte(data_, *tokenizer_, validation_rows());
  return Baseline{order2, fmt::format("order-2 byte model: {:.4f} bits per byte on the held-out text", order2)};
}

std::optional<std::string> TextTask::sample(const Run& run) const {
  const TensorRanks& tensor = run.tensor;
  const bool is_divided = tensor.mesh != nullptr || tensor.experts != nullptr;
  // The ranks that divide the model of rank 0 sample with it.
  if (run.rank != 0 && !(is_divided && tensor.evaluators(run.group)->rank() == 0)) return std::nullopt;
  SampleOptions sampling = sample_options(config_);
  sampling.mesh = tensor.mesh;
  return sample_text(*model_, *tokenizer_, config_.validation.sample_prompt, sampling);
}

std::string TextTask::data_words() const { return tutti::describe(data_.corpus().counts()); }

std::string TextTask::rows_words() const {
  return fmt::format("{} training rows of {} tokens", data_.rows_per_epoch(), config_.data.sequence_length);
}

std::string TextTask::place_words(const TrainState& state) const {
  const DataCursor cursor = data_.cursor_at(state.next_row);
  return fmt::format("row {} of epoch {}", cursor.row, cursor.epoch);
}

std::string TextTask::layout_words(const Run& run) const {
  if (!run.sharded && run.tensor.mesh == nullptr && run.tensor.experts == nullptr) return "";
  return describe_mesh(*model_, run.sharded.get(), config_, run.ranks);
}

std::vector<std::pair<std::string, std::string>> TextTask::facts() const {
  return {{"model", model_->config().name()},
          {"parameters", std::to_string(model_->parameter_count())},
          {"tokenizer", tokenizer_->name()}};
}

}  // namespace tutti::train
