#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/model_ranks.h"
#include "cli/sampling_flags.h"
#include "tutti/core/error.h"
#include "tutti/train/generate.h"

namespace tutti::cli {
namespace {

struct GenerateFlags {
  std::string run;
  train::GenerateOptions options;
  ModelRanks ranks;
};

int run_generate(GenerateFlags flags) {
  TUTTI_CHECK(std::filesystem::exists(flags.run),
              "generate: {} does not exist; expected a run folder or a published model", flags.run);
  std::optional<StartedRank> rank;
  if (const auto status = start_ranks(flags.ranks, flags.run, flags.options.model, rank)) return *status;
  const std::string text = train::generate_text(flags.run, flags.options) + "\n";
  if (!rank || rank->group().rank() == 0) std::fwrite(text.data(), 1, text.size(), stdout);  // it may hold any byte
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& action, int argc, char** argv) {
  auto flags = std::make_shared<GenerateFlags>();
  flags->ranks.command_line.assign(argv, argv + argc);
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
  add_rank_flags(*verb, flags->ranks);
  verb->callback([flags, &action] { action = [flags] { return run_generate(*flags); }; });
}

}  // namespace tutti::cli
