// The verbs of the program. Each add_* declares one verb, its flags and what it does; main.cpp runs the chosen one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace tutti::cli {

// Runs the chosen verb; returns the exit status.
using Action = std::function<int()>;

void add_train(CLI::App& app, Action& action, int argc, char** argv);
void add_plan(CLI::App& app, Action& action);
// Takes the command line of the program to start, which follows "--", off the end of argv.
void add_launch(CLI::App& app, Action& action, int& argc, char** argv);
void add_generate(CLI::App& app, Action& action, int argc, char** argv);
void add_chat(CLI::App& app, Action& action);
void add_serve(CLI::App& app, Action& action, int argc, char** argv);
void add_eval(CLI::App& app, Action& action);
void add_embed(CLI::App& app, Action& action);
void add_tokenizer(CLI::App& app, Action& action);
void add_checkpoint(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_package(CLI::App& app, Action& action);
void add_diff(CLI::App& app, Action& action);
void add_replay(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action, int argc, char** argv);
void add_demo(CLI::App& app, Action& action);
void add_env(CLI::App& app, Action& action);
void add_trace(CLI::App& app, Action& action);
// Rewrites tensors on the command line that CLI11 would take for lists of its own.
void add_explain(CLI::App& app, Action& action, int argc, char** argv);

// Trains on `ranks` ranks of this host, quietly and until `stop_at`, as `tutti train CONFIG OVERRIDES` does. Returns
// its exit status.
int start_training(const std::string& config, int ranks, int64_t stop_at, const std::vector<std::string>& overrides);

// The words `--section.key=value` of a verb that allows extras, in their order; train::apply_override() checks what
// they say. Throws CLI::ExtrasError for any other word.
std::vector<std::string> overrides_of(const CLI::App& verb);

// Answers a command line that could not be parsed: prints the help it asked for, or what is wrong with the nearest verb
// or flag. Returns the exit status.
int explain_usage(const CLI::App& app, const CLI::ParseError& error);

}  // namespace tutti::cli
