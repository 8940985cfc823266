// Config from a TOML file, environment variables and flags, and back to TOML.
//
// Later sources override earlier ones: defaults, file, environment (TUTTI_<SECTION>_<KEY>), flags
// (--section.key=value). All of them are checked in the same way, and every error names its place: file:line:column,
// variable or flag. A file and an environment with several wrong keys give all of them at once (faults.h); what is
// right is set.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/train/config/config.h"

namespace tutti::train {

// Sets the keys in `text` in `config`. `source` is the name of the file for messages. UsageError for malformed TOML,
// unknown sections and keys (suggesting the nearest), wrong types and illegal values. A retired key (retired_keys.h) is
// passed over; `notes`, if any, gets a line about it. Flags and variables that name one are errors.
void read_toml(Config& config, std::string_view text, std::string_view source,
               std::vector<std::string>* notes = nullptr);

// Reads a file on top of `config`, or of the defaults. UsageError when it is missing, EnvironmentError when it cannot
// be read.
void read_config(Config& config, const std::filesystem::path& path, std::vector<std::string>* notes = nullptr);
Config load_config(const std::filesystem::path& path, std::vector<std::string>* notes = nullptr);

// Every key of a file that some version of the program wrote, known to this one or not: "section.key" and the value as
// to_toml() writes it. UsageError on malformed TOML, EnvironmentError when the file cannot be read.
std::map<std::string, std::string> load_settings(const std::filesystem::path& path);

// Applies one flag, "--section.key=value". Strings need no quotes; a list is written "a,b" or as in TOML.
void apply_override(Config& config, std::string_view flag);

// Applies all TUTTI_<SECTION>_<KEY> of `environment` ("NAME=value"). UsageError for an unknown key of a known section.
void apply_environment(Config& config, std::span<const std::string> environment);
void apply_environment(Config& config);

// Every key with its value, without those that only other models have; reading it back gives the same Config.
std::string to_toml(const Config& config);

}  // namespace tutti::train
