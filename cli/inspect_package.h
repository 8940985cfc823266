// What `tutti package inspect` prints.
#pragma once

#include <string>

#include "tutti/deploy/package.h"

namespace tutti::cli {

// "f32 [2, tokens, 16]"
std::string text_of(const deploy::Manifest& manifest, const deploy::PackageArgument& input);
// The names of the ops with which ranks communicate, "" when there are none.
std::string collectives_of(const deploy::Manifest& manifest);
// Lines for people, with `plans` also the steps of the first combination of sizes.
std::string text_of_package(const deploy::Package& package, bool plans);

}  // namespace tutti::cli
