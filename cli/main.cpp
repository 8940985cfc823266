// The tutti program. Results go to stdout, talk to stderr.
// Exit status: 0 done, 1 an error, 2 wrong usage, 3 `trace why` found something, 125 `diff` or `replay` cannot tell,
// 130 interrupted, 128 + n when signal n killed a rank.

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <new>

#include "cli/command.h"
#include "cli/print_diff.h"
#include "cli/standard_output.h"
#include "tutti/core/error.h"
#include "tutti/job/printable.h"

namespace {

int run(const tutti::cli::Action& action) {
  try {
    return action();
  } catch (const tutti::UsageError& e) {
    std::fprintf(stderr, "tutti: error: %s\n", tutti::comm::printable_lines(e.what()).c_str());
    return 2;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "tutti: error: out of memory; ask for smaller sizes\n");
    return 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tutti: error: %s\n", tutti::comm::printable_lines(e.what()).c_str());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tutti;
  std::signal(SIGXFSZ, SIG_IGN);  // a file, or a standard output, that may not grow any more is an error of its write
  CLI::App app("Tutti: distributed deep learning with the same bits on any layout");
  app.name("tutti");
  app.set_version_flag("--version", "tutti " TUTTI_VERSION);
  app.require_subcommand(1);
  cli::Action action;
  cli::add_demo(app, action);
  cli::add_train(app, action, argc, argv);
  cli::add_plan(app, action);
  cli::add_launch(app, action, argc, argv);
  cli::add_generate(app, action, argc, argv);
  cli::add_chat(app, action);
  cli::add_serve(app, action, argc, argv);
  cli::add_eval(app, action);
  cli::add_embed(app, action);
  cli::add_tokenizer(app, action);
  cli::add_checkpoint(app, action);
  cli::add_convert(app, action);
  cli::add_package(app, action);
  cli::add_diff(app, action);
  cli::add_replay(app, action);
  cli::add_report(app, action);
  cli::add_bench(app, action, argc, argv);
  cli::add_env(app, action);
  cli::add_trace(app, action);
  cli::add_explain(app, action, argc, argv);
  int status = 0;
  try {
    app.parse(argc, argv);
    status = run(action);
  } catch (const CLI::ParseError& e) {
    status = cli::explain_usage(app, e);
  }
  const bool compares = app.got_subcommand("diff") || app.got_subcommand("replay");
  return cli::status_after_output(status, compares ? cli::kCannotTell : 1);
}
