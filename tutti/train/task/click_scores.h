// Validation of click models on held-out rows: AUC, calibration and loss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tutti::comm {
class ProcessGroup;
}
namespace tutti::models {
class Dlrm;
}
namespace tutti::parallel {
class ShardedTables;
}

namespace tutti::train {

class ClickSource;
struct Config;

struct ClickScores {
  int64_t rows = 0;
  double loss = 0;  // mean, in nats
  double auc = 0;   // NaN when the rows have no click, or nothing but clicks
  double calibration = 0;
};

// Scores the first `most` rows that are left in `source`, or all if there are fewer. Model and tables are in evaluation
// mode meanwhile. The ranks of `group`, null: one, share the rows, and all get the same bits for any number of them.
// EnvironmentError when there is no row. Collective.
ClickScores click_scores(models::Dlrm& model, parallel::ShardedTables& tables, ClickSource& source, int64_t most,
                         comm::ProcessGroup* group);

// How many held-out rows a validation scores at most.
int64_t most_validation_rows(const Config& config);

// Returns the AUC of the logits behind the same rows, which no model surpasses but by chance; nothing where nobody
// knows them.
std::optional<double> best_auc(ClickSource& source, int64_t most);

struct ClickEvaluation {
  int64_t step = 0;  // of the checkpoint
  ClickScores scores;
  std::optional<double> best_auc;  // see train::best_auc()
};

// Whether the folder is that of a run of a click model.
bool is_click_run(const std::filesystem::path& folder);

// Scores the newest checkpoint of a run on one rank: on the rows of `data`, files as clicks.validation_paths names
// them, or without any on the run's own held-out rows, as its validation does. UsageError when the run has no complete
// checkpoint, and when no rows are held out.
ClickEvaluation evaluate_click_run(const std::filesystem::path& run, const std::vector<std::string>& data);

}  // namespace tutti::train
