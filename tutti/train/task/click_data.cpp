// The files of a start of a click model, and what a command needs to know of such models.
#include "tutti/core/hash.h"
#include "tutti/io/click_file.h"
#include "tutti/io/text_files.h"
#include "tutti/train/agreement.h"
#include "tutti/train/report/report.h"
#include "tutti/train/run_start.h"
#include "tutti/train/task/click_plan.h"
#include "tutti/train/task/click_task.h"
#include "tutti/train/task/task_kind.h"

namespace tutti::train {
namespace {

// Opens each path, so that a missing file or column is said before anything runs, and reads no rows.
std::vector<ClickInput::File> open_all(const std::vector<std::string>& paths, const Config& config) {
  const ClickColumns columns = click_columns(config);
  std::vector<ClickInput::File> files;
  for (const std::string& path : paths)
    files.push_back({.path = displayable(path),
                     .number = io::open_click_file(path, columns, config.clicks.delimiter[0])->place().file});
  return files;
}

// The configuration with the files that its patterns match.
Config with_files(Config config) {
  if (config.clicks.source != "files") return config;
  config.data.paths = expand_patterns(config.data.paths);
  if (config.validation.every > 0) config.clicks.validation_paths = expand_patterns(config.clicks.validation_paths);
  return config;
}

class ClickData final : public TaskData {
 public:
  explicit ClickData(const Config& config)
      : config_(with_files(config)), files_(open_all(config_.data.paths, config_)) {
    if (config.validation.every > 0) open_all(config_.clicks.validation_paths, config_);
  }

  std::vector<NamedHash> describe(RunInputs& inputs) const override {
    inputs.clicks = ClickInput{.files = files_};
    std::string numbers;
    for (const ClickInput::File& file : files_) numbers += fmt::format("{} ", file.number);
    return {{"the files of clicks", hash64(numbers)}};
  }
  void describe_files(RunInputs&) const override {}
  InputChanges compare(const RunStart& start, const RunInputs& now) const override;
  std::string what_goes_on() const override { return "the files as they are"; }
  std::unique_ptr<Task> make_task(const RunStart&) override { return std::make_unique<ClickTask>(config_); }

 private:
  const Config config_;
  const std::vector<ClickInput::File> files_;
};

// Files may move, but not change places.
InputChanges ClickData::compare(const RunStart& start, const RunInputs& now) const {
  const std::vector<ClickInput::File>& before = start.saved.inputs.clicks->files;
  const std::vector<ClickInput::File>& after = now.clicks->files;
  InputChanges changes;
  if (before.size() != after.size())
    changes.changed.push_back(fmt::format("data.paths names {} file{}, and named {}", after.size(),
                                          after.size() == 1 ? "" : "s", before.size()));
  for (size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    if (before[i].number == after[i].number) continue;
    changes.changed.push_back(fmt::format("{} has another size or header than {} had, file {} of data.paths",
                                          after[i].path, before[i].path, i + 1));
  }
  return changes;
}

}  // namespace

const TaskKind click_kind{
    .check_model = [](const Config& config) { models::validate(click_model(config)); },
    .plan = plan_click_step,
    .how_to_shrink =
        [](const Config& config, int64_t) {
          return fmt::format(
              "(of virtual shards of {} samples). Use a smaller tables.dim than {}, fewer clicks.table_rows, or more "
              "numerics.virtual_shards",
              config.clicks.global_batch_samples / config.numerics.virtual_shards, config.tables.dim);
        },
    .divides_model = false,
    .open_data = [](const Config& config, const std::string&, const RunStart&) -> std::unique_ptr<TaskData> {
      return std::make_unique<ClickData>(config);
    },
};

}  // namespace tutti::train
