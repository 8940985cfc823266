// The start of `tutti train`: looks for a run to resume and checks that its inputs have not changed.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/train/checkpoint/checkpoint_state.h"
#include "tutti/train/fresh_start.h"
#include "tutti/train/run_folder.h"

namespace tutti::comm {
class ProcessGroup;
}

namespace tutti::train {

class Task;

struct RunStart {
  std::filesystem::path path;         // the run folder
  std::unique_ptr<RunFolder> folder;  // the lock; on rank 0, once there is something to write or to resume
  std::optional<std::filesystem::path> checkpoint;  // the checkpoint that the run resumes from, the same on all ranks
  TrainState saved;                                 // the state in that checkpoint
  std::vector<std::string> notes;                   // messages for the user, on rank 0
  bool moves_aside = false;                         // on rank 0: an old run, for this one begins anew
  bool is_in_memory = false;  // the run goes on from memory that has outlived a rank (survivors.h)

  bool continues() const { return checkpoint.has_value() || is_in_memory; }
};

// Looks for a run to resume. `config` may leave values to the run (settled()). All ranks call it. UsageError when fixed
// settings were changed; EnvironmentError when another run uses the folder, or none of its checkpoints is complete.
RunStart find_run(const Config& config, const FreshStart& fresh, comm::ProcessGroup* group);

// The run that the ranks of an earlier team have left in memory, with `state_json`, the state with which it started.
// All ranks call it.
RunStart rejoin_run(const Config& config, const std::string& state_json, comm::ProcessGroup* group);

// What a start trains, and what describes its data.
struct RunData {
  std::unique_ptr<Task> task;
  RunInputs inputs;
};

// Opens the data. All ranks call it. UsageError when ranks have other settings or data than rank 0, or when the data of
// a resumed run have changed, unless data.changed is "continue".
RunData open_run_data(const Config& config, const std::string& cache_folder, RunStart& start,
                      comm::ProcessGroup* group);

// Locks the folder if that has not been done yet, and writes the configuration to it, and what the task keeps. Called
// by rank 0.
void settle_run(RunStart& start, const Config& config, const FreshStart& fresh, const Task& task);

}  // namespace tutti::train
