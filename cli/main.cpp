// The tutti program. Results go to stdout, talk to stderr.
// Exit status: 0 done, 1 an error, 2 wrong usage, 130 interrupted, 128 + n when signal n killed a rank.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cli/command.h"
#include "tutti/core/error.h"

namespace tutti::cli {

std::string cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string own = variable("TUTTI_CACHE_DIR"); !own.empty()) return own;
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/tutti";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/tutti";
}

}  // namespace tutti::cli

int main(int argc, char** argv) {
  using namespace tutti;
  CLI::App app("Tutti: distributed deep learning with the same bits on any layout");
  app.name("tutti");
  app.set_version_flag("--version", "tutti " TUTTI_VERSION);
  app.require_subcommand(1);
  cli::Action action;
  cli::add_train(app, action, argc, argv);
  cli::add_generate(app, action);
  cli::add_tokenizer(app, action);
  cli::add_checkpoint(app, action);
  cli::add_bench(app, action);
  cli::add_env(app, action);
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands({})) verbs.push_back(verb->get_name());
  if (argc > 1 && argv[1][0] != '-' && std::find(verbs.begin(), verbs.end(), argv[1]) == verbs.end()) {
    std::fprintf(stderr, "tutti: error: %s\n", unknown_name_message("verb", argv[1], verbs).c_str());
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  try {
    return action();
  } catch (const UsageError& e) {
    std::fprintf(stderr, "tutti: error: %s\n", e.what());
    return 2;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tutti: error: %s\n", e.what());
    return 1;
  }
}
