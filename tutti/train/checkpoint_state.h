// state.json of a checkpoint: where the run stood, what its numbers depend on, and a digest of everything saved.
//
// Its last member is a digest of all bytes before it, so that no byte of the file changes unnoticed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "tutti/train/digest.h"
#include "tutti/train/run_inputs.h"

namespace tutti::train {

struct TrainState {
  int64_t step = 0;         // steps taken
  int64_t tokens_seen = 0;
  int64_t next_row = 0;     // global row that the next step begins with
  int64_t optimizer_steps = 0;
  uint64_t seed = 0;
  RunInputs inputs = {};
};

struct SavedState {
  TrainState train;
  Digests digests;  // texts: JSON numbers lose bits
};

std::string state_json_of(const SavedState& state);
// `where` is the file's name in messages. UsageError for what is no JSON (runtime/json_document.h) or of another format,
// EnvironmentError for what is not, byte for byte, what state_json_of() wrote.
SavedState parse_state_json(std::string_view text, std::string_view where);

}  // namespace tutti::train
