#include <CLI/CLI.hpp>

#include "cli/command.h"

namespace tutti::cli {

std::vector<std::string> overrides_of(const CLI::App& verb) {
  std::vector<std::string> overrides = verb.remaining();
  for (const std::string& word : overrides) {
    const size_t equals = word.find('=');
    if (!word.starts_with("--") || equals == std::string::npos || word.find('.') > equals)
      throw CLI::ExtrasError(verb.get_name(), {word + " (a key of the configuration is given as --section.key=value)"});
  }
  return overrides;
}

}  // namespace tutti::cli
