// The configuration of a training run: one struct per section of the TOML file, with the defaults.
//
// The files of tutti/train/config/sections define type, default, meaning, unit and legal values of every key, and its
// rules with other keys; these structs, parsing, writing, help and docs/config.md are generated from them. -1 means
// "the rest" or "as many as fit" where a key allows it.
#pragma once

#include "tutti/train/config/config_sections.h"  // IWYU pragma: export

namespace tutti::train {

class Faults;

// The rules between keys that the configuration breaks, naming the keys and how to fix them; each key by itself is
// checked when it is set.
Faults faults_of(const Config& config);
// UsageError with all of them, if there are some.
void validate(const Config& config);

}  // namespace tutti::train
