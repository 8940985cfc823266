#include "tutti/train/task/click_scores.h"

#include <algorithm>
#include <array>
#include <limits>

#include "tutti/autograd/tape.h"
#include "tutti/comm/process_group.h"
#include "tutti/core/error.h"
#include "tutti/core/exact_sum.h"
#include "tutti/io/text_files.h"
#include "tutti/nn/click_metrics.h"
#include "tutti/nn/loss.h"
#include "tutti/ops/unary.h"
#include "tutti/parallel/merged_metric.h"
#include "tutti/parallel/sharded_tables.h"
#include "tutti/runtime/numerics.h"
#include "tutti/train/agreement.h"
#include "tutti/train/checkpoint/checkpoint_folder.h"
#include "tutti/train/config/config_toml.h"
#include "tutti/train/config/model_kind.h"
#include "tutti/train/task/click_source.h"
#include "tutti/train/task/click_tables.h"

namespace tutti::train {
namespace {

// The most rows of a forward.
constexpr int64_t kRowsScoredAtOnce = 1024;

constexpr const char* kConfigFile = "config.resolved.toml";  // of a run

}  // namespace

ClickScores click_scores(models::Dlrm& model, parallel::ShardedTables& tables, ClickSource& source, int64_t most,
                         comm::ProcessGroup* group) {
  const NoGradScope no_grad;
  const nn::EvalScope evaluating(model), evaluating_tables(tables);
  const int64_t rank = group ? group->rank() : 0, ranks = group ? group->size() : 1;
  nn::RocAuc auc;
  nn::Calibration calibration;
  ExactSum nats(ExactTerm::value);
  int64_t rows = 0;
  // Rows are independent, and the sums are free of order, so any split gives the same bits. A round has a block of rows
  // for each rank; all ranks see how many there are, and make the same lookups.
  for (int64_t left = most, got = 1; left > 0 && got > 0;) {
    ClickRows mine;
    on_all_ranks(group, [&] {
      for (int64_t r = 0; r < ranks && left > 0 && got > 0; ++r) {
        const int64_t count = std::min(kRowsScoredAtOnce, left);
        if (r == rank) {
          mine = source.read(count);
          got = mine.count();
        } else {
          got = source.skip(count);
        }
        left -= got;
      }
    });
    std::vector<TableBatch> batches;
    if (mine.dense.defined() && mine.count() > 0) batches.push_back(models::table_batch_of(mine.categories));
    const std::vector<Tensor> looked_up = tables.look_up(batches);
    if (looked_up.empty()) continue;
    const Tensor logits = model.forward_looked_up(mine.dense, looked_up[0]);
    const Tensor losses = nn::binary_cross_entropy_with_logits(logits, mine.labels, {}, LossReduction::none);
    auc.add(logits, mine.labels);
    calibration.add(sigmoid(logits), mine.labels);
    nats.add({losses.data<float>(), static_cast<size_t>(losses.numel())});
    rows += mine.count();
  }
  if (ranks > 1) {
    auto words = nats.words();
    group->all_reduce_values<int64_t>(words);
    nats.set_words(words);
    group->all_reduce_values<int64_t>({&rows, 1});
  }
  TUTTI_CHECK_ENV(rows > 0, "validation: clicks.validation_paths hold no row");
  return {.rows = rows,
          .loss = nats.value() / static_cast<double>(rows),
          .auc = parallel::merged(auc, group).value(),
          .calibration = parallel::merged(calibration, group).value()};
}

int64_t most_validation_rows(const Config& config) {
  return config.validation.steps < 0 ? std::numeric_limits<int64_t>::max()
                                     : config.validation.steps * config.clicks.global_batch_samples;
}

std::optional<double> best_auc(ClickSource& source, int64_t most) {
  nn::RocAuc auc;
  for (int64_t left = most; left > 0;) {
    const Tensor logits = source.true_logits(std::min(kRowsScoredAtOnce, left));
    if (!logits.defined()) return std::nullopt;
    if (logits.numel() == 0) break;
    auc.add(logits, source.read(logits.numel()).labels);
    left -= logits.numel();
  }
  return auc.value();
}

bool is_click_run(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / kConfigFile) &&
         kind_of(load_config(folder / kConfigFile)) == ModelKind::clicks;
}

ClickEvaluation evaluate_click_run(const std::filesystem::path& run, const std::vector<std::string>& data) {
  Config config = load_config(run / kConfigFile);
  if (!data.empty()) {
    config.clicks.source = "files";
    config.clicks.validation_paths = data;
    config.validation.steps = -1;
  }
  TUTTI_CHECK(config.clicks.source != "files" || !config.clicks.validation_paths.empty(),
              "{} has no held-out rows: its clicks.validation_paths is empty; name files of such rows", run.string());
  if (config.clicks.source == "files") config.clicks.validation_paths = expand_patterns(config.clicks.validation_paths);
  config.tables.memory_mib = 0;  // that of a rank among others
  const auto checkpoint = newest_checkpoint(run / "checkpoint");
  TUTTI_CHECK(checkpoint.has_value(), "{} holds no complete checkpoint; train it first", run.string());
  const NumericsScope numerics(config.numerics.mode == "fast" ? NumericsMode::fast : NumericsMode::strict);
  models::Dlrm model(click_model(config));
  const std::unique_ptr<parallel::ShardedTables> tables = make_click_tables(config, nullptr);
  load_click_weights(*checkpoint / kModelFile, model, *tables);
  const int64_t most = most_validation_rows(config);
  return {.step = *step_of(*checkpoint),
          .scores = click_scores(model, *tables, *open_held_out_clicks(config), most, nullptr),
          .best_auc = best_auc(*open_held_out_clicks(config), most)};
}

}  // namespace tutti::train
