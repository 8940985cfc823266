// The task of language models: tokens in, the next token out, measured in bits per byte of held-out text.
#pragma once

#include <memory>

#include "tutti/io/token_dataset.h"
#include "tutti/io/tokenizer.h"
#include "tutti/models/language_model.h"
#include "tutti/train/config/config.h"
#include "tutti/train/task/task.h"

namespace tutti::train {

class TextTask final : public Task {
 public:
  // `run`: the folder of a run that continues, whose description of the model is taken; "": it begins.
  TextTask(const Config& config, std::unique_ptr<Tokenizer> tokenizer, TokenCorpus corpus,
           const std::filesystem::path& run);

  nn::Module& model() const override { return *model_; }
  std::vector<nn::NamedParameter> optimized() const override { return model_->named_parameters(); }
  TensorRanks divide(comm::ProcessGroup* group) override;
  std::optional<parallel::ShardedModule> shard(comm::ProcessGroup* group, const TensorRanks& divided,
                                               std::function<Tensor(const nn::NamedParameter&)> memory) override;
  std::string load_first_weights(const std::filesystem::path& path) override;
  void keep(const std::filesystem::path& run) const override;

  int64_t rows_per_shard() const override;
  int64_t items_per_row() const override { return config_.data.sequence_length; }
  double training_flops_per_item() const override {
    return model_->training_flops_per_token(config_.data.sequence_length);
  }
  std::unique_ptr<ShardWork> make_work(const Run& run, parallel::Shards& shards) override;

  void validate(const Run& run, StepRecord& record) const override;
  std::optional<Baseline> baseline(const Run& run) const override;
  std::optional<std::string> sample(const Run& run) const override;

  std::string data_words() const override;
  std::string rows_words() const override;
  std::string place_words(const TrainState& state) const override;
  std::string layout_words(const Run& run) const override;
  std::vector<std::pair<std::string, std::string>> facts() const override;

 private:
  int64_t validation_rows() const;

  const Config config_;
  const std::unique_ptr<Tokenizer> tokenizer_;
  TokenDataset data_;
  const std::unique_ptr<models::LanguageModel> model_;
};

}  // namespace tutti::train
