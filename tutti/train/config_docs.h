// What a user reads about configuration keys, made from the table.
#pragma once

#include <string>

namespace tutti::train {

// For --help: one line per flag with meaning, legal values, unit, default and environment variable.
std::string config_help();
// docs/config.md.
std::string config_markdown();

}  // namespace tutti::train
