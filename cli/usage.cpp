#include <CLI/CLI.hpp>
#include <cstdio>
#include <sstream>

#include "cli/command.h"
#include "cli/print_diff.h"
#include "tutti/core/error.h"

namespace tutti::cli {
namespace {

// What stands wrong on the command line: a word where `verb` has verbs of its own, or a flag that it does not have.
std::string message_of(const CLI::App& app, const CLI::App& verb, const CLI::ParseError& error) {
  std::vector<std::string> verbs, flags;
  for (const CLI::App* sub : verb.get_subcommands({})) verbs.push_back(sub->get_name());
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_group().empty()) continue;  // --help does not show it either
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flags.push_back("-" + name);
  }
  for (const std::string& word : app.remaining(true)) {
    const std::string name = word.substr(0, word.find('='));
    const bool config_key = name.find('.') != std::string::npos;
    if (word.starts_with("-") && !config_key) return unknown_name_message("flag", name, flags);
    if (!word.starts_with("-") && !verbs.empty()) return unknown_name_message("verb", word, verbs);
  }
  return error.what();
}

}  // namespace

int explain_usage(const CLI::App& app, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) {  // --help, --version
    std::ostringstream help;
    app.exit(error, help, help);
    std::fputs(help.str().c_str(), stdout);
    return 0;
  }
  const CLI::App* verb = &app;
  std::string command = "tutti";
  while (!verb->get_subcommands().empty()) {
    verb = verb->get_subcommands().back();
    command += " " + verb->get_name();
  }
  std::fprintf(stderr, "tutti: error: %s\nRun '%s --help' for more.\n", message_of(app, *verb, error).c_str(),
               command.c_str());
  return app.got_subcommand("diff") || app.got_subcommand("replay") ? kCannotTell : 2;
}

}  // namespace tutti::cli
