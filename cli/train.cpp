#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>

#include "cli/command.h"
#include "tutti/comm/launcher.h"
#include "tutti/comm/rank_environment.h"
#include "tutti/core/error.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/config_docs.h"
#include "tutti/train/config_toml.h"
#include "tutti/train/signals.h"
#include "tutti/train/trainer.h"

namespace tutti::cli {
namespace {

struct TrainFlags {
  std::string config;
  int ranks = 1;
  bool fresh = false;
  bool quiet = false;
  std::vector<std::string> data;
  std::vector<std::string> command_line;  // of this process, to start ranks with
  std::vector<std::string> overrides;
};

train::Config resolve(const TrainFlags& flags) {
  train::Config config = train::load_config(flags.config);
  train::apply_environment(config);
  for (const std::string& flag : flags.overrides) train::apply_override(config, flag);
  if (!flags.data.empty()) config.data.paths = flags.data;
  if (config.run.name.empty()) config.run.name = std::filesystem::path(flags.config).stem().string();
  const int64_t degree = config.parallelism.data_parallel_replicate_degree;
  TUTTI_CHECK(degree == -1 || degree == flags.ranks, "parallelism.data_parallel_replicate_degree is {}, but {} rank{} started; give -n {}",
              degree, flags.ranks, flags.ranks == 1 ? " is" : "s are", degree);
  train::validate(config);
  return config;
}

// Cores are shared out between the ranks of this host unless the user says otherwise.
std::vector<std::string> rank_variables(int ranks) {
  if (std::getenv("TUTTI_THREADS")) return {};
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return {fmt::format("TUTTI_THREADS={}", std::max(1, cores / ranks))};
}

int run_train(TrainFlags flags) {
  const auto place = comm::read_rank_environment();
  const bool foreign = !place && std::getenv("WORLD_SIZE") && std::string(std::getenv("WORLD_SIZE")) != "1";
  TUTTI_CHECK(!foreign, "WORLD_SIZE={} is set by another launcher; this version starts its ranks itself, on one host: "
              "unset RANK and WORLD_SIZE and give -n", std::getenv("WORLD_SIZE"));
  if (place) flags.ranks = place->world_size;
  const train::Config config = resolve(flags);  // before any rank starts, so that a wrong key is said once
  train::TrainerOptions options{.fresh = flags.fresh, .cache_folder = cache_folder(), .group = nullptr, .quiet = flags.quiet};
  if (!place && flags.ranks > 1) {
    return comm::launch_local({.ranks = flags.ranks, .argv = flags.command_line, .environment = rank_variables(flags.ranks)});
  }
  std::unique_ptr<comm::ShmGroup> group;
  std::unique_ptr<RankContext> context;
  std::unique_ptr<RankContext::Scope> scope;
  if (place) {
    group = comm::join_launched_group(*place);
    options.group = group.get();
    context = std::make_unique<RankContext>(RankContext::Options{.rank = place->rank, .world_size = place->world_size});
    scope = std::make_unique<RankContext::Scope>(*context);
  }
  const train::TrainerResult result = train::train(config, options);
  return result.interrupted ? train::kInterruptedStatus : 0;
}

}  // namespace

void add_train(CLI::App& app, Action& action, int argc, char** argv) {
  auto flags = std::make_shared<TrainFlags>();
  flags->command_line.assign(argv, argv + argc);
  CLI::App* verb = app.add_subcommand("train", "Train the model that a TOML file describes; the same command again resumes it");
  verb->add_option("config", flags->config, "Configuration, e.g. configs/quickstart.toml")->required();
  verb->add_option("-n,--ranks", flags->ranks, "Local ranks to start: 1, 2, 4, ... up to numerics.virtual_shards")
      ->check(CLI::Range(1, 64))->capture_default_str();
  verb->add_option("--data", flags->data, "Text to train on instead of data.paths: files, folders, globs, .jsonl, gzip, dictzip");
  verb->add_flag("--fresh", flags->fresh, "Move an old run of this name aside instead of resuming it");
  verb->add_flag("--quiet", flags->quiet, "No line per step");
  verb->allow_extras();  // --section.key=value, checked by the config table
  verb->footer([] { return "Any key of the configuration can be given as --section.key=value:\n" + train::config_help(); });
  verb->callback([flags, verb, &action] {
    for (const std::string& extra : verb->remaining()) {
      if (extra.find('=') == std::string::npos || extra.find('.') > extra.find('=') || !extra.starts_with("--"))
        throw CLI::ExtrasError("train", {extra + " (a key of the configuration is given as --section.key=value)"});
      flags->overrides.push_back(extra);
    }
    action = [flags] { return run_train(*flags); };
  });
}

}  // namespace tutti::cli
