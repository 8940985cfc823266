// The task of click models: rows of click data in, the probability of a click out, measured by AUC and calibration.
#pragma once

#include <memory>

#include "tutti/models/dlrm.h"
#include "tutti/train/config/config.h"
#include "tutti/train/task/click_read_ahead.h"
#include "tutti/train/task/click_tables.h"
#include "tutti/train/task/task.h"

namespace tutti::train {

class ClickTask final : public Task {
 public:
  explicit ClickTask(const Config& config);
  ~ClickTask() override;

  nn::Module& model() const override { return *model_; }
  parallel::ShardedTables* tables() const override { return tables_.get(); }
  int64_t parameter_count() const override;
  std::vector<nn::NamedParameter> optimized() const override { return model_->named_parameters(); }
  TensorRanks divide(comm::ProcessGroup* group) override;
  void initialize() override;
  std::string load_first_weights(const std::filesystem::path& path) override;

  int64_t rows_per_shard() const override {
    return config_.clicks.global_batch_samples / config_.numerics.virtual_shards;
  }
  int64_t items_per_row() const override { return 1; }
  double training_flops_per_item() const override;
  std::unique_ptr<ShardWork> make_work(const Run& run, parallel::Shards& shards) override;
  std::vector<int64_t> position() const override { return rows_.position(); }
  void resume(const TrainState& state) override;

  void validate(const Run& run, StepRecord& record) const override;
  std::optional<Baseline> baseline(const Run& run) const override;

  std::string data_words() const override;
  std::string rows_words() const override;
  std::string place_words(const TrainState& state) const override;
  std::string layout_words(const Run& run) const override;
  std::vector<std::pair<std::string, std::string>> facts() const override;

 private:
  const Config config_;
  const std::unique_ptr<models::Dlrm> model_;
  std::unique_ptr<parallel::ShardedTables> tables_;  // once divide() has made them
  ClickReadAhead rows_;
};

}  // namespace tutti::train
