// Flags of verbs that write texts with a model that several ranks may divide.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/started_rank.h"
#include "tutti/train/text_settings.h"

namespace CLI {
class App;
}

namespace tutti::cli {

struct ModelRanks {
  int ranks = 1;
  bool products = false, experts = false;
  std::vector<std::string> command_line;  // of this process, to start ranks with
};

// -n, --divide-products and --divide-experts.
void add_rank_flags(CLI::App& verb, ModelRanks& flags);

// Starts the ranks, and returns the exit status of all when they have ended; or, in a process that is one of them or
// the only one, fills `model` and, for one of several, `rank`, and returns nothing. UsageError for ranks that cannot
// divide the model at `path`, and for other ranks than a launcher has started.
std::optional<int> start_ranks(const ModelRanks& flags, const std::string& path, train::TextModelOptions& model,
                               std::optional<StartedRank>& rank);

}  // namespace tutti::cli
