#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "tutti/io/tokenizer_source.h"
#include "tutti/train/checkpoint.h"
#include "tutti/train/config_toml.h"
#include "tutti/train/sample.h"

namespace tutti::cli {
namespace {

struct GenerateFlags {
  std::string run;
  std::string prompt = "The ";
  train::SampleOptions options;
};

int run_generate(const GenerateFlags& flags) {
  const std::filesystem::path run(flags.run);
  const train::Config config = train::load_config(run / "config.resolved.toml");
  const auto checkpoint = train::newest_checkpoint(run / "checkpoint");
  TUTTI_CHECK(checkpoint.has_value(), "{} holds no complete checkpoint; train it first", flags.run);
  // A learned tokenizer lies in the run folder; the data that it was learned from need not be there any more.
  const auto own = run / "tokenizer.json";
  const auto tokenizer = open_tokenizer(std::filesystem::exists(own) ? own.string() : config.data.tokenizer, {}, "");
  models::Qwen3 model(models::qwen3_config(config.model.flavor), config.data.sequence_length);
  train::load_model(*checkpoint, model);
  train::SampleOptions options = flags.options;
  options.context = config.data.sequence_length;
  std::printf("%s\n", train::sample_text(model, *tokenizer, flags.prompt, options).c_str());
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* verb = app.add_subcommand("generate", "Write text with the newest checkpoint of a run");
  verb->add_option("run", flags->run, "Run folder, e.g. runs/quickstart")->required();
  verb->add_option("--prompt", flags->prompt, "Text to continue")->capture_default_str();
  verb->add_option("--max-tokens", flags->options.max_tokens, "Tokens to write at most")->check(CLI::NonNegativeNumber)->capture_default_str();
  verb->add_option("--temperature", flags->options.temperature, "0 takes the likeliest token")->check(CLI::Range(0.0, 1000.0))->capture_default_str();
  verb->add_option("--top-k", flags->options.top_k, "Draw from the k likeliest tokens; 0: all")->check(CLI::NonNegativeNumber)->capture_default_str();
  verb->add_option("--seed", flags->options.seed, "Equal seeds give equal text")->capture_default_str();
  verb->callback([flags, &action] { action = [flags] { return run_generate(*flags); }; });
}

}  // namespace tutti::cli
