// Scores of a trained click model on held-out rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tutti/train/task/click_scores.h"

namespace tutti::train {

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
