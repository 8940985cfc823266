// What each stage of the compiler made of a function, in files, for people.
#pragma once

#include <string>

#include "tutti/runtime/function_ref.h"

namespace tutti::graph {

// Writes what `text` says to `$TUTTI_COMPILE_DUMP/NAME-N-STAGE.txt`; N counts in this process. Does nothing when the
// variable is not set, and says so once on stderr when the folder cannot be written: looking never changes what happens.
void dump_stage(const std::string& name, const char* stage, FunctionRef<std::string()> text);

}  // namespace tutti::graph
