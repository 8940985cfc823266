#include "tutti/train/task/click_task.h"

#include <numeric>

#include "tutti/autograd/backward.h"
#include "tutti/nn/loss.h"
#include "tutti/ops/creation.h"
#include "tutti/parallel/sharded_tables.h"
#include "tutti/parallel/shards.h"
#include "tutti/train/agreement.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/run.h"
#include "tutti/train/task/click_scores.h"

namespace tutti::train {
namespace {

class ClickWork final : public ShardWork {
 public:
  ClickWork(models::Dlrm& model, parallel::ShardedTables& tables, ClickReadAhead& rows, const TablesConfig& config,
            parallel::Shards& shards, comm::ProcessGroup* group)
      : model_(model), tables_(tables), data_(rows), config_(config), shards_(shards), group_(group) {}

  int64_t read(int64_t, std::span<const int64_t> shards) override {
    std::vector<TableBatch> batches;
    next_ = 0;
    int64_t count = 0;
    on_all_ranks(group_, [&] {
      rows_ = data_.next(shards);
      const MemoryCategoryScope category(MemoryCategory::data);
      for (const ClickRows& rows : rows_) {
        batches.push_back(models::table_batch_of(rows.categories));
        count += rows.count();
      }
    });
    looked_up_ = tables_.look_up(batches);
    return count;
  }
  Tensor run(int64_t, double scale) override {
    const ClickRows rows = std::exchange(rows_[next_], {});
    const Tensor logits = model_.forward_looked_up(rows.dense, std::exchange(looked_up_[next_++], {}));
    const Tensor losses = nn::binary_cross_entropy_with_logits(logits, rows.labels, {}, LossReduction::none);
    backward(losses, full(losses.sizes(), scale), {.sink = shards_.sink()});
    return detach(losses);
  }
  void finish(double lr_factor) override {
    tables_.set_lr(config_.lr * lr_factor);
    tables_.step();
  }

 private:
  models::Dlrm& model_;
  parallel::ShardedTables& tables_;
  ClickReadAhead& data_;
  const TablesConfig config_;
  parallel::Shards& shards_;
  comm::ProcessGroup* const group_;
  std::vector<ClickRows> rows_;    // of the step's shards
  std::vector<Tensor> looked_up_;  // for them
  size_t next_ = 0;
};

}  // namespace

ClickTask::ClickTask(const Config& config)
    : config_(config),
      model_(std::make_unique<models::Dlrm>(click_model(config))),
      rows_(open_training_clicks(config), config.numerics.virtual_shards, ClickTask::rows_per_shard()) {}

ClickTask::~ClickTask() = default;

int64_t ClickTask::parameter_count() const { return models::parameter_count(model_->config()); }

TensorRanks ClickTask::divide(comm::ProcessGroup* group) {
  tables_ = make_click_tables(config_, group);
  return {};
}

void ClickTask::initialize() {
  nn::initialize(*model_);
  tables_->initialize();
}

std::string ClickTask::load_first_weights(const std::filesystem::path& path) {
  load_click_weights(std::filesystem::is_regular_file(path) ? path : resolve_checkpoint(path) / kModelFile, *model_,
                     *tables_);
  return "";
}

// A product of a layer takes two operations a weight in forward, and four in backward; so does one of a pair.
double ClickTask::training_flops_per_item() const {
  const models::DlrmConfig& c = model_->config();
  const auto tables = static_cast<double>(c.table_rows.size()), dim = static_cast<double>(c.dim);
  double products = (tables + 1) * tables / 2 * dim;
  for (const nn::NamedParameter& p : model_->named_parameters())
    products += p.parameter.sizes().ndim() == 2 ? static_cast<double>(numel_of(p.parameter.sizes())) : 0;
  return 6 * products;
}

std::unique_ptr<ShardWork> ClickTask::make_work(const Run& run, parallel::Shards& shards) {
  return std::make_unique<ClickWork>(*model_, *tables_, rows_, config_.tables, shards, run.group);
}

void ClickTask::resume(const TrainState& state) {
  if (state.step > 0) rows_.seek(state.next_row, state.position);
}

void ClickTask::validate(const Run& run, StepRecord& record) const {
  const std::unique_ptr<ClickSource> held_out = open_held_out_clicks(config_);
  const ClickScores scores = click_scores(*model_, *tables_, *held_out, most_validation_rows(config_), run.group);
  record.val_loss = scores.loss;
  record.val_auc = scores.auc;
  record.val_calibration = scores.calibration;
}

std::optional<Baseline> ClickTask::baseline(const Run&) const {
  const std::optional<double> best = best_auc(*open_held_out_clicks(config_), most_validation_rows(config_));
  if (!best) return std::nullopt;
  return Baseline{*best, fmt::format("the best possible AUC on the held-out rows is {:.4f}", *best)};
}

std::string ClickTask::data_words() const {
  const ClickColumns columns = click_columns(config_);
  const std::string sizes =
      fmt::format("{} dense and {} category columns", columns.dense.size(), columns.categories.size());
  if (config_.clicks.source == "generated") return "generated rows of " + sizes;
  return fmt::format("rows of {} from {} file{}", sizes, config_.data.paths.size(),
                     config_.data.paths.size() == 1 ? "" : "s");
}

std::string ClickTask::rows_words() const {
  const std::vector<int64_t>& rows = config_.clicks.table_rows;
  return fmt::format("{} tables with {} rows of {}, stepped by row-wise Adagrad and not clipped, {} samples a step",
                     rows.size(), std::accumulate(rows.begin(), rows.end(), int64_t{0}), config_.tables.dim,
                     config_.clicks.global_batch_samples);
}

std::string ClickTask::place_words(const TrainState& state) const { return fmt::format("row {}", state.next_row); }

std::string ClickTask::layout_words(const Run& run) const {
  if (run.ranks == 1) return "";
  const ClickTablesPlan plan = plan_click_tables(config_, run.ranks);
  std::string text = "tables by this plan:\n" + plan.plan.to_string(plan.tables);
  text.pop_back();  // the end of the last line
  return text;
}

std::vector<std::pair<std::string, std::string>> ClickTask::facts() const {
  return {{"model", kDlrm},
          {"parameters", std::to_string(parameter_count())},
          {"tables", std::to_string(config_.clicks.table_rows.size())}};
}

}  // namespace tutti::train
