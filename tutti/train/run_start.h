// What a start of `tutti train` finds: a run to continue, or none; and whether its inputs are still what they were.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/io/token_corpus.h"
#include "tutti/train/checkpoint.h"
#include "tutti/train/run_folder.h"

namespace tutti::train {

struct RunStart {
  std::filesystem::path path;                       // of the run folder
  std::unique_ptr<RunFolder> folder;                // the lock: rank 0's, from the moment there is something to write or to continue
  std::optional<std::filesystem::path> checkpoint;  // what the run continues from, the same on all ranks
  TrainState saved;                                 // of that checkpoint
  std::vector<std::string> notes;                   // for the user, rank 0's

  bool continues() const { return checkpoint.has_value(); }
};

// Looks for a run to continue. All ranks call it. UsageError when settings that must stay were changed; EnvironmentError
// when another run uses the folder, or none of its checkpoints is whole.
RunStart find_run(const Config& config, bool fresh, comm::ProcessGroup* group);

// The text and the tokenizer of a start.
struct RunData {
  std::unique_ptr<Tokenizer> tokenizer;  // the run's own when it continues
  TokenCorpus corpus;
  RunInputs inputs;
};

// Opens the data. All ranks call it. UsageError when ranks have other settings, tokenizers or text than rank 0, or when
// a run that continues has other text or another tokenizer than it had, unless data.changed is "continue".
RunData open_run_data(const Config& config, const std::string& cache_folder, RunStart& start, comm::ProcessGroup* group);

// Takes the folder if that was not done yet, and puts configuration and tokenizer there. Rank 0 calls it.
void settle_run(RunStart& start, const Config& config, bool fresh, const Tokenizer& tokenizer);

}  // namespace tutti::train
