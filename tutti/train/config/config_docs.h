// Documentation of the configuration keys, generated from their table.
#pragma once

#include <string>

namespace tutti::train {

// For --help: one line per flag with meaning, legal values, unit, default and environment variable.
std::string config_help();
// The text of docs/config.md.
std::string config_markdown();

}  // namespace tutti::train
