#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/print_diff.h"
#include "cli/runs_folder.h"
#include "tutti/core/error.h"
#include "tutti/train/replay.h"
#include "tutti/train/signals.h"

namespace tutti::cli {
namespace {

struct ReplayFlags {
  std::string run, keep;
  std::optional<int64_t> from, steps;
  int ranks = 1;
  bool json = false;
  std::vector<std::string> overrides;
};

int run_replay(const ReplayFlags& flags) {
  int trained = 0;
  const auto replay_and_compare = [&] {
    const train::ReplayPlan plan = train::plan_replay(flags.run, flags.from, flags.steps);
    const RunsFolder folder(flags.keep, "tutti-replay");
    std::vector<std::string> overrides = train::prepare_replay(plan, folder.path());
    overrides.insert(overrides.end(), flags.overrides.begin(), flags.overrides.end());
    if (!flags.json) {
      fmt::print("replaying steps {} to {} of {} on {} rank{}\n", plan.from + 1, plan.to, flags.run, flags.ranks,
                 flags.ranks == 1 ? "" : "s");
      std::fflush(stdout);
    }
    trained = start_training(plan.config().string(), flags.ranks, plan.to, overrides);
    TUTTI_CHECK_ENV(trained == 0, "training the steps again ended with status {}", trained);
    return train::compare_replay(plan, folder.path());
  };
  const int status = tell_difference(replay_and_compare, flags.json);
  return trained == train::kInterruptedStatus ? trained : status;
}

}  // namespace

void add_replay(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("replay",
                                      "Train recorded steps of a run again, on any layout, and compare every bit; exit "
                                      "status 0: same bits, 1: different, "
                                      "125: an error (git bisect run). Any key as --section.key=value");
  auto flags = std::make_shared<ReplayFlags>();
  verb->add_option("run", flags->run, "Run folder")->required();
  verb->add_option("--from", flags->from,
                   "Step of a checkpoint to start from, 0 for the beginning; default: the newest with a step behind it")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--steps", flags->steps, "Steps to repeat; default: all that are recorded from there on")
      ->check(CLI::PositiveNumber);
  verb->add_option("-n,--ranks", flags->ranks, "Local ranks to start")->check(CLI::Range(1, 64))->capture_default_str();
  verb->add_option("--keep", flags->keep, "An empty folder for the run that repeats the steps, which stays there");
  verb->add_flag("--json", flags->json, "One object, as tutti diff --json");
  verb->allow_extras();
  verb->callback([verb, flags, &action] {
    flags->overrides = overrides_of(*verb);
    for (const std::string& word : flags->overrides) {
      if (word.starts_with("--run."))
        throw CLI::ExtrasError(
            std::vector<std::string>{word + " (a replay has a folder of its own; --keep FOLDER keeps it)"});
    }
    action = [flags] { return run_replay(*flags); };
  });
}

}  // namespace tutti::cli
