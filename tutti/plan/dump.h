// Dumps the result of each compiler stage to readable files.
#pragma once

#include <set>
#include <span>
#include <string>

#include "tutti/runtime/function_ref.h"

namespace tutti::graph {

// Writes the result of `text` to `$TUTTI_COMPILE_DUMP/NAME-N-STAGE.txt`, where N counts within the process. Does
// nothing when the variable is not set; when the folder cannot be written, reports that once on stderr and continues.
void dump_stage(const std::string& name, const char* stage, FunctionRef<std::string()> text);

// The stages that TUTTI_COMPILE_DUMP_PASSES names, with commas between them, or all of `known` for "all". UsageError
// for a name that is not known. Empty when nothing is dumped.
std::set<std::string> stages_asked_for(std::span<const std::string> known);

}  // namespace tutti::graph
