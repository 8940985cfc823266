// Task: what a run trains, and on what: a model, its data, the loss of a virtual shard, and how the model is measured.
//
// Trainer, observers, logs, checkpoints and signals are the same for every task. The tasks are rows of task_kind.h;
// text_task.h trains language models, click_task.h click models.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/train/data/run_inputs.h"
#include "tutti/train/step/tensor_ranks.h"

namespace tutti {
class Tensor;
}
namespace tutti::comm {
class ProcessGroup;
}
namespace tutti::nn {
class Module;
struct NamedParameter;
}  // namespace tutti::nn
namespace tutti::parallel {
class ShardedModule;
class ShardedTables;
class Shards;
}  // namespace tutti::parallel

namespace tutti::train {

struct NamedHash;
struct Run;
struct RunStart;
struct StepRecord;
struct TrainState;

// Forward and backward of the virtual shards of a rank.
class ShardWork {
 public:
  virtual ~ShardWork() = default;
  // Reads the rows of these shards, ascending, in the step whose first row is `first_row`. Returns the number of their
  // losses that count.
  virtual int64_t read(int64_t first_row, std::span<const int64_t> shards) = 0;
  // Forward and backward of the next of these shards, each loss times `scale`. Returns the losses, which the caller
  // adds to the shard.
  virtual Tensor run(int64_t shard, double scale) = 0;
  // Changes what the optimizer does not: called with the step's factor of the learning rate when all shards of all
  // ranks have run, the loss is finite and the optimizer has made its step. Collective.
  virtual void finish(double /*lr_factor*/) {}
};

// A value on the held-out data that the model is compared with.
struct Baseline {
  double value;
  std::string note;  // for the log
};

class Task {
 public:
  virtual ~Task() = default;

  // ---- the model
  virtual nn::Module& model() const = 0;
  // Embedding tables that belong to the model and are divided over ranks apart from it; null: none.
  virtual parallel::ShardedTables* tables() const { return nullptr; }
  virtual int64_t parameter_count() const;  // of both
  // The parameters that the optimizer changes.
  virtual std::vector<nn::NamedParameter> optimized() const = 0;
  // Divides the model over ranks, if the configuration says so: before and after the memory of the masters is known.
  // Collective.
  virtual TensorRanks divide(comm::ProcessGroup*) { return {}; }
  virtual std::optional<parallel::ShardedModule> shard(comm::ProcessGroup* group, const TensorRanks& divided,
                                                       std::function<Tensor(const nn::NamedParameter&)> memory);
  // Gives model and tables their first values.
  virtual void initialize();
  // Loads the weights that a run starts from. Returns what the user should know of them, "" when there is nothing.
  virtual std::string load_first_weights(const std::filesystem::path& path) = 0;
  // Writes what the folder of a run that begins keeps beside its configuration.
  virtual void keep(const std::filesystem::path& /*run*/) const {}

  // ---- steps
  virtual int64_t rows_per_shard() const = 0;
  // A row has so many items, which records count: tokens or samples.
  virtual int64_t items_per_row() const = 0;
  virtual double training_flops_per_item() const = 0;
  virtual std::unique_ptr<ShardWork> make_work(const Run& run, parallel::Shards& shards) = 0;
  // Where the data stand, for a checkpoint, beside TrainState::next_row; and goes there.
  virtual std::vector<int64_t> position() const { return {}; }
  virtual void resume(const TrainState&) {}

  // ---- held-out data
  // Measures the model, for the record of a step. Collective.
  virtual void validate(const Run& run, StepRecord& record) const = 0;
  // Computed by rank 0 alone.
  virtual std::optional<Baseline> baseline(const Run& run) const = 0;
  // What the model writes when the run ends. Called by all ranks, of which some get nothing.
  virtual std::optional<std::string> sample(const Run&) const { return std::nullopt; }

  // ---- words for log and report
  virtual std::string data_words() const = 0;
  // "131072 training rows of 256 tokens".
  virtual std::string rows_words() const = 0;
  // "row 12 of epoch 0".
  virtual std::string place_words(const TrainState& state) const = 0;
  // How ranks divide the model, "" where they do not.
  virtual std::string layout_words(const Run&) const { return ""; }
  virtual std::vector<std::pair<std::string, std::string>> facts() const = 0;
};

// How the inputs of a run that continues differ from those it began with.
struct InputChanges {
  std::vector<std::string> changed;  // sentences, each of something that makes the numbers others
  std::vector<std::string> notes;    // what else the user should know
};

// The data of a run, opened, before a model is there.
class TaskData {
 public:
  virtual ~TaskData() = default;
  // Writes what describes the data to `inputs`, but for the files. Returns hashes that must be the same on all ranks.
  virtual std::vector<NamedHash> describe(RunInputs& inputs) const = 0;
  // Adds the files, on one rank.
  virtual void describe_files(RunInputs& inputs) const = 0;
  // Compares the inputs of this start with those of the run. UsageError for what no run can go on with.
  virtual InputChanges compare(const RunStart& start, const RunInputs& now) const = 0;
  // With what a run goes on whose data have changed: "the text as it is and the run's own tokenizer".
  virtual std::string what_goes_on() const = 0;
  // The task with these data, which are moved. UsageError when they are too few or do not fit the model.
  virtual std::unique_ptr<Task> make_task(const RunStart& start) = 0;
};

}  // namespace tutti::train
