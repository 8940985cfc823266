// The composition of a training step's peak memory as text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tutti/runtime/allocator.h"

namespace tutti::train {

// Rows such as "activations" -> "41.2 MiB (62 %)", largest first, without empty categories; the last row is "peak".
std::vector<std::pair<std::string, std::string>> memory_rows(const MemoryStatistics& statistics);
// The same as one line, without categories that round to 0: "66.4 MiB = activations 41.2 + parameters 25.2".
std::string memory_line(const MemoryStatistics& statistics);

}  // namespace tutti::train
