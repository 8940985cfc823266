// The configuration that a command line describes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/train/config/config.h"

namespace tutti::cli {

// The file, then variables of the environment, then `overrides` (--section.key=value); `data`, if any, in the place of
// data.paths. Checked as a whole and for `ranks` ranks, except for the memory that it needs. UsageError naming what is
// wrong. `is_quiet`: what the file has that selects nothing has been told by another process; else it is told on
// stderr.
train::Config resolved_config(const std::string& file, const std::vector<std::string>& overrides,
                              const std::vector<std::string>& data, int64_t ranks, bool is_quiet = false);

// Whether `ranks` ranks, of which `local_ranks` are on this host, exchange data in its memory.
bool shares_memory(const train::Config& config, int64_t ranks, int64_t local_ranks);

}  // namespace tutti::cli
