#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/resolved_config.h"
#include "cli/started_rank.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/job/launch/launched.h"
#include "tutti/job/launch/launcher.h"
#include "tutti/job/rendezvous/launch_variables.h"
#include "tutti/runtime/cache_folder.h"
#include "tutti/runtime/host.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/config/config_docs.h"
#include "tutti/train/report/machine.h"
#include "tutti/train/signals.h"
#include "tutti/train/step/check_memory.h"
#include "tutti/train/survival/survivors.h"
#include "tutti/train/trainer.h"

namespace tutti::cli {
namespace {

struct TrainFlags {
  std::string config;
  int ranks = 1;
  bool ranks_given = false;
  bool fresh = false;
  bool quiet = false;
  int64_t stop_at = 0;
  int max_restarts = 0;
  std::vector<std::string> data;
  std::vector<std::string> command_line;  // of this process, to start ranks with
  std::vector<std::string> overrides;
};

// Checked before any rank starts, so that what is wrong is said once.
train::Config resolve(const TrainFlags& flags, int64_t local_ranks, bool is_quiet) {
  train::Config config = resolved_config(flags.config, flags.overrides, flags.data, flags.ranks, is_quiet);
  train::check_memory(config, flags.ranks, local_ranks, shares_memory(config, flags.ranks, local_ranks),
                      train::machine_memory());
  return config;
}

// Told to the ranks that -n starts: they have the same command line, where another launcher's ranks may have no -n.
constexpr const char* kStartedByTrain = "TUTTI_STARTED_BY_TRAIN";

int status_of(const train::TrainerResult& result) { return result.interrupted ? train::kInterruptedStatus : 0; }

bool is_started_again() {
  const char* count = std::getenv("TORCHELASTIC_RESTART_COUNT");
  return count != nullptr && std::atoi(count) > 0;
}

train::TrainerOptions options_of(const TrainFlags& flags) {
  return {.fresh = {.is_asked = flags.fresh, .is_restart = is_started_again(), .job = comm::launcher_identity()},
          .cache_folder = default_cache_folder().string(),
          .group = nullptr,
          .quiet = flags.quiet,
          .stop_at = flags.stop_at};
}

int start_ranks(const TrainFlags& flags, const train::Config& config) {
  return comm::launch_local({.ranks = flags.ranks,
                             .argv = flags.command_line,
                             .environment = {fmt::format("{}=1", kStartedByTrain)},
                             .max_restarts = flags.max_restarts,
                             .survive_rank_loss = config.training.survive_rank_loss});
}

int train_on_threads(const train::Config& config, int ranks, const train::TrainerOptions& common) {
  int status = 0;
  comm::run_ranks(ranks,
                  [&](comm::ProcessGroup& group) {
                    if (!std::getenv("TUTTI_THREADS"))
                      RankContext::current().set_threads(std::max(1, usable_cores() / ranks));
                    train::TrainerOptions options = common;
                    options.group = &group;
                    const train::TrainerResult result = train::train(config, options);
                    if (group.rank() == 0) status = status_of(result);
                  },
                  {.transport = "threads"});
  return status;
}

int run_train(TrainFlags flags) {
  const auto place = comm::read_launch_place();
  const bool ours = std::getenv(kStartedByTrain) != nullptr;
  TUTTI_CHECK(!place || ours || !flags.ranks_given, "{} has started {} rank{} already; leave out -n", place->launcher,
              place->world_size, place->world_size == 1 ? "" : "s");
  if (place) flags.ranks = place->world_size;
  const bool is_told = ours || (place && place->rank != 0);  // by the process that starts ranks, or by the first rank
  const train::Config config = resolve(flags, place ? place->local_world_size.value_or(1) : flags.ranks, is_told);
  train::TrainerOptions options = options_of(flags);
  const bool as_threads = config.runtime.transport == "threads";
  TUTTI_CHECK(!place || !as_threads,
              "runtime.transport is threads, but {} has started {} rank{} as processes; choose another transport, or "
              "start with -n only",
              place->launcher, place->world_size, place->world_size == 1 ? "" : "s");
  TUTTI_CHECK(flags.max_restarts == 0 || ours || (!place && !as_threads && flags.ranks > 1),
              "--max-restarts={}: only ranks that this command starts as processes are started again, and here {}; "
              "leave it out, or start with -n 2 or more",
              flags.max_restarts,
              as_threads ? "runtime.transport is threads"
              : place    ? fmt::format("{} starts them", place->launcher)
                         : "there is one rank");
  if (as_threads) return train_on_threads(config, flags.ranks, options);
  if (!place && flags.ranks > 1) {
    return start_ranks(flags, config);
  }
  if (place && place->world_size > 1 && config.training.survive_rank_loss) {
    comm::tie_to_launcher();
    const std::string& transport = config.runtime.transport;
    return status_of(train::train_with_survivors(config, options,
                                                 {.seat = place->local_rank.value_or(place->rank),
                                                  .threads = threads_of_rank(*place),
                                                  .transport = transport == "auto" ? "" : transport}));
  }
  std::optional<StartedRank> rank;
  if (place) {
    rank.emplace(*place, config.runtime.transport);
    options.group = &rank->group();
  }
  return status_of(train::train(config, options));
}

}  // namespace

int start_training(const std::string& config, int ranks, int64_t stop_at, const std::vector<std::string>& overrides) {
  TrainFlags flags{.config = config, .ranks = ranks, .quiet = true, .stop_at = stop_at, .overrides = overrides};
  flags.command_line = {
      "tutti", "train", config, "-n", std::to_string(ranks), "--quiet", fmt::format("--stop-at={}", stop_at)};
  flags.command_line.insert(flags.command_line.end(), overrides.begin(), overrides.end());
  const train::Config resolved = resolve(flags, ranks, false);
  if (resolved.runtime.transport == "threads") return train_on_threads(resolved, ranks, options_of(flags));
  return start_ranks(flags, resolved);
}

void add_train(CLI::App& app, Action& action, int argc, char** argv) {
  auto flags = std::make_shared<TrainFlags>();
  flags->command_line.assign(argv, argv + argc);
  CLI::App* verb =
      app.add_subcommand("train", "Train the model that a TOML file describes; the same command again resumes it");
  verb->add_option("config", flags->config, "Configuration, e.g. configs/quickstart.toml")->required();
  verb->add_option("-n,--ranks", flags->ranks, "Local ranks to start, at most numerics.virtual_shards")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb->add_option("--data", flags->data,
                   "Text to train on instead of data.paths: files, folders, globs, .jsonl, gzip, dictzip");
  verb->add_flag("--fresh", flags->fresh, "Move an old run of this name aside instead of resuming it");
  verb->add_flag("--quiet", flags->quiet, "No line per step");
  verb->add_option("--stop-at", flags->stop_at,
                   "Save and stop after this step, with exit status 0; the same command without it goes on")
      ->check(CLI::PositiveNumber);
  verb->add_option("--max-restarts", flags->max_restarts,
                   "How often all ranks of -n are started again from the last checkpoint after one has failed; with "
                   "training.survive_rank_loss, how many ranks that were lost are replaced")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  verb->allow_extras();  // --section.key=value, checked by the config table
  verb->footer(
      [] { return "Any key of the configuration can be given as --section.key=value:\n" + train::config_help(); });
  verb->callback([flags, verb, &action] {
    flags->overrides = overrides_of(*verb);
    flags->ranks_given = verb->count("-n") > 0;
    action = [flags] { return run_train(*flags); };
  });
}

}  // namespace tutti::cli
