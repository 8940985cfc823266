// state.json of a checkpoint: the position of the run, the inputs its numbers depend on, and digests of all saved
// tensors.
//
// Its last member is a digest of all bytes before it, so that no byte of the file can change unnoticed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "tutti/train/checkpoint/digest.h"
#include "tutti/train/data/run_inputs.h"

namespace tutti::train {

struct TrainState {
  int64_t step = 0;  // number of steps taken
  int64_t items_seen = 0;
  int64_t next_row = 0;  // global row with which the next step begins
  int64_t optimizer_steps = 0;
  uint64_t seed = 0;
  std::vector<int64_t> position = {};  // of the data, where rows are not found by next_row alone (task/task.h)
  RunInputs inputs = {};
};

struct SavedState {
  TrainState train;
  Digests digests;  // strings, because JSON numbers may lose bits
};

std::string state_json_of(const SavedState& state);
// `where` is the name of the file for messages. UsageError for text that is not JSON (runtime/json_document.h) or has
// another format, EnvironmentError when it is not, byte for byte, what state_json_of() wrote.
SavedState parse_state_json(std::string_view text, std::string_view where);
// Reads state.json of a step folder. Throws the errors of parse_state_json(), and also when the file belongs to another
// step.
SavedState read_state(const std::filesystem::path& step_folder);

}  // namespace tutti::train
