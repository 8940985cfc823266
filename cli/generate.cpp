#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/sampling_flags.h"
#include "cli/started_rank.h"
#include "tutti/core/error.h"
#include "tutti/job/launch/launcher.h"
#include "tutti/train/generate.h"
#include "tutti/train/ready_model.h"

namespace tutti::cli {
namespace {

struct GenerateFlags {
  std::string run;
  train::GenerateOptions options;
  int ranks = 1;
  bool products = false, experts = false;
  std::vector<std::string> command_line;  // of this process, to start ranks with
};

int run_generate(GenerateFlags flags) {
  train::TextModelOptions& model = flags.options.model;
  model.divides_experts = flags.experts;
  model.divides_products = flags.products || !flags.experts;
  const auto place = comm::read_launch_place();
  TUTTI_CHECK(!place || flags.ranks == 1 || flags.ranks == place->world_size,
              "{} has started {} rank{} already; leave out -n", place->launcher, place->world_size,
              place->world_size == 1 ? "" : "s");
  TUTTI_CHECK(std::filesystem::exists(flags.run),
              "generate: {} does not exist; expected a run folder or a published model", flags.run);
  TUTTI_CHECK(flags.ranks == 1 || !train::is_published(flags.run),
              "generate: {} is a published model, which one rank runs; leave out -n", flags.run);
  if (!place && flags.ranks > 1) {
    train::check_text_model_ranks(flags.run, flags.ranks, model);
    return comm::launch_local({.ranks = flags.ranks, .argv = flags.command_line});
  }
  std::optional<StartedRank> rank;
  if (place) {
    rank.emplace(*place, "auto");
    model.group = &rank->group();
  }
  const std::string text = train::generate_text(flags.run, flags.options) + "\n";
  if (!place || place->rank == 0) std::fwrite(text.data(), 1, text.size(), stdout);  // it may hold any byte
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& action, int argc, char** argv) {
  auto flags = std::make_shared<GenerateFlags>();
  flags->command_line.assign(argv, argv + argc);
  CLI::App* verb = app.add_subcommand("generate",
                                      "Write text with the newest checkpoint of a run, without flags that of its "
                                      "sample.txt, or with a published model");
  verb->add_option("run", flags->run,
                   "Run folder, e.g. runs/quickstart, or a published model: a folder with config.json, a GGUF file")
      ->required();
  verb->add_option("prompt,--prompt", flags->options.prompt,
                   "Text to continue; else validation.sample_prompt of the run");
  verb->add_option("--max-tokens", flags->options.max_tokens,
                   "Tokens to write at most; else validation.sample_tokens, or as the model's files say, or 200")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--stop", flags->options.stops, "Ends the text, without it; may be given several times")
      ->take_all()
      ->expected(1);
  add_sampling_flags(*verb, flags->options.sampling);
  add_model_flags(*verb, flags->options.model);
  verb->add_option("-n,--ranks", flags->ranks, "Local ranks to start, which divide the model; the text is that of one")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb->add_flag("--divide-products", flags->products,
                 "With several ranks: divide the matrix products (tensor parallelism); so without flags");
  verb->add_flag("--divide-experts", flags->experts, "With several ranks: divide the experts of a mixture of experts");
  verb->callback([flags, &action] { action = [flags] { return run_generate(*flags); }; });
}

}  // namespace tutti::cli
