#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "cli/print_diff.h"

namespace tutti::cli {

void add_diff(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand(
      "diff", "Compare two runs bit by bit; exit status 0: same bits, 1: different, 125: an error (git bisect run)");
  struct Flags {
    std::string a, b;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  const char* what = "Run folder, checkpoint, .safetensors file or metrics.jsonl";
  verb->add_option("a", flags->a, what)->required();
  verb->add_option("b", flags->b, what)->required();
  verb->add_flag("--json", flags->json, "One object: same_bits, settings, number, differing, ...");
  verb->callback([flags, &action] {
    action = [flags] { return tell_difference([&] { return train::compare_runs(flags->a, flags->b); }, flags->json); };
  });
}

}  // namespace tutti::cli
