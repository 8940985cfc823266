// The kinds of tasks, by model.name: what a command needs to know of a task before its data are opened.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tutti/train/config/config.h"

namespace tutti::train {

class TaskData;
struct RunStart;
struct StepPlan;

struct TaskKind {
  // UsageError when there is no such model.
  void (*check_model)(const Config& config);
  // What a step takes of each rank (step_plan.h), and the sentence of a refusal behind its numbers.
  StepPlan (*plan)(const Config& config, int64_t ranks, bool is_shared);
  std::string (*how_to_shrink)(const Config& config, int64_t ranks);
  // Whether ranks can divide the model, so that a number of them has several layouts.
  bool divides_model;
  // Opens the data of a start. `cache_folder`: "": no cache.
  std::unique_ptr<TaskData> (*open_data)(const Config& config, const std::string& cache_folder, const RunStart& start);
};

const TaskKind& task_kind(const Config& config);

extern const TaskKind text_kind, click_kind;

}  // namespace tutti::train
