// What the peak memory of a training step was made of, in words.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tutti/runtime/allocator.h"

namespace tutti::train {

// "activations" -> "41.2 MiB (62 %)", largest first, without categories that held nothing; the last row is "peak".
std::vector<std::pair<std::string, std::string>> memory_rows(const MemoryStatistics& statistics);
// The same as one line, without what rounds to nothing: "66.4 MiB = activations 41.2 + parameters 25.2".
std::string memory_line(const MemoryStatistics& statistics);

}  // namespace tutti::train
