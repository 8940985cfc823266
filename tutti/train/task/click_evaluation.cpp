#include "tutti/train/task/click_evaluation.h"

#include <memory>

#include "tutti/core/error.h"
#include "tutti/io/text_files.h"
#include "tutti/parallel/sharded_tables.h"
#include "tutti/runtime/numerics.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/config/config_toml.h"
#include "tutti/train/config/model_kind.h"
#include "tutti/train/task/click_source.h"
#include "tutti/train/task/click_tables.h"

namespace tutti::train {
namespace {

constexpr const char* kConfigFile = "config.resolved.toml";

}  // namespace

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
