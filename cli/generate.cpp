#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "tutti/train/generate.h"

namespace tutti::cli {
namespace {

int run_generate(const std::string& run, const train::GenerateOptions& options) {
  const std::string text = train::generate_text(run, options) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);  // it may hold any byte
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  struct Flags {
    std::string run;
    train::GenerateOptions options;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* verb = app.add_subcommand("generate", "Write text with the newest checkpoint of a run; without flags, that of its sample.txt");
  verb->add_option("run", flags->run, "Run folder, e.g. runs/quickstart")->required();
  verb->add_option("--prompt", flags->options.prompt, "Text to continue; else validation.sample_prompt of the run");
  verb->add_option("--max-tokens", flags->options.max_tokens, "Tokens to write at most; else validation.sample_tokens")->check(CLI::NonNegativeNumber);
  verb->add_option("--temperature", flags->options.temperature, "0 takes the likeliest token; else 0.7")->check(CLI::Range(0.0, 1000.0));
  verb->add_option("--top-k", flags->options.top_k, "Draw from the k likeliest tokens; 0: all; else 40")->check(CLI::NonNegativeNumber);
  verb->add_option("--seed", flags->options.seed, "Equal seeds give equal text; else training.seed");
  verb->callback([flags, &action] { action = [flags] { return run_generate(flags->run, flags->options); }; });
}

}  // namespace tutti::cli
