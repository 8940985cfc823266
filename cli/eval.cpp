#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/quantize_flags.h"
#include "cli/sampling_flags.h"
#include "tutti/io/text_source.h"
#include "tutti/train/quantize_model.h"
#include "tutti/train/ready_model.h"
#include "tutti/train/score_text.h"
#include "tutti/train/task/click_scores.h"

namespace tutti::cli {
namespace {

struct EvalFlags {
  std::string model;
  std::vector<std::string> data;
  TextSourceOptions reading;
  int64_t window = 1024;
  std::string dtype = "float32";
  bool quantized = false;
  train::QuantizeSettings quantize;
  std::optional<DType> cache_dtype;
  bool json = false;
  std::vector<std::string> of_texts;  // flags on the command line that are for language models
};

// Prints the scores of a click model.
int run_click_eval(const EvalFlags& flags) {
  TUTTI_CHECK(flags.of_texts.empty(),
              "eval: {} is a run of a click model, which is computed in float32 and reads rows; {} is for language "
              "models, leave it out",
              flags.model, flags.of_texts[0]);
  const train::ClickEvaluation result = train::evaluate_click_run(flags.model, flags.data);
  const train::ClickScores& scores = result.scores;
  if (flags.json) {
    nlohmann::json line = {{"model", "dlrm"},
                           {"step", result.step},
                           {"rows", scores.rows},
                           {"auc", scores.auc},
                           {"calibration", scores.calibration},
                           {"loss", scores.loss}};
    if (result.best_auc) line["best_auc"] = *result.best_auc;
    std::printf("%s\n", line.dump().c_str());
    return 0;
  }
  std::printf("dlrm after step %lld: %lld held-out rows\n", static_cast<long long>(result.step),
              static_cast<long long>(scores.rows));
  std::printf("AUC %.4f, calibration %.4f, loss %.4f\n", scores.auc, scores.calibration, scores.loss);
  if (result.best_auc) std::printf("the best possible AUC on these rows is %.4f\n", *result.best_auc);
  return 0;
}

int run_eval(const EvalFlags& flags) {
  TUTTI_CHECK(std::filesystem::exists(flags.model),
              "eval: {} does not exist; expected a published model, or the folder of a run of a click model",
              flags.model);
  if (train::is_click_run(flags.model)) return run_click_eval(flags);
  TUTTI_CHECK(!flags.data.empty(), "eval: --data is required, the files of the text to score");
  if (flags.quantize.is_wanted()) {
    TUTTI_CHECK(!flags.quantized,
                "eval: --quantize makes codes of numbers and --quantized keeps the blocks of a file; give one of them");
    train::check(flags.quantize);
  }
  const train::ReadyModel ready = train::open_published(
      flags.model, flags.window, flags.dtype == "bfloat16" ? DType::bf16 : DType::f32, flags.quantized);
  if (flags.quantize.is_wanted())
    train::quantize_model(*ready.model, ready.tokenizer.get(), flags.quantize, flags.window);
  const TextDocuments text = read_counted_documents(flags.data, flags.reading);
  std::fprintf(stderr, "%s\n", describe(text.counts).c_str());
  const train::TextScore score =
      train::score_documents(*ready.model, *ready.tokenizer, text.documents, flags.window, {}, flags.cache_dtype);
  TUTTI_CHECK(score.tokens > 0, "eval: the text has no token with one before it");
  TUTTI_CHECK(std::isfinite(score.log_probability),
              "eval: the log probability of the text is {}: the model's weights, or its numbers in {}, are not finite",
              score.log_probability, flags.dtype);
  if (flags.json) {
    const nlohmann::json line = {{"model", ready.model->config().name()},
                                 {"documents", text.documents.size()},
                                 {"tokens", score.tokens},
                                 {"bytes", score.nbytes},
                                 {"log_probability", score.log_probability},
                                 {"perplexity", score.perplexity()},
                                 {"bits_per_byte", score.bits_per_byte()}};
    std::printf("%s\n", line.dump().c_str());
    return 0;
  }
  std::printf("%s: %lld tokens of %lld bytes in %zu documents\n", ready.model->config().name().c_str(),
              static_cast<long long>(score.tokens), static_cast<long long>(score.nbytes), text.documents.size());
  std::printf("log probability %.4f, perplexity %.4f per token, %.4f bits per byte\n", score.log_probability,
              score.perplexity(), score.bits_per_byte());
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* verb = app.add_subcommand(
      "eval", "Measure how likely a published model finds a text, or how well a click model tells clicks");
  verb->add_option("model", flags->model,
                   "A folder of Hugging Face's, or a GGUF file; or the folder of a run of a click model")
      ->required();
  verb->add_option(
      "--data", flags->data,
      "Files, folders, globs, .jsonl, gzip, dictzip; for a click model files of rows, by default those that "
      "its run holds out");
  verb->add_option("--text-field", flags->reading.text_field,
                   "The key under which the lines of .jsonl files have their text")
      ->capture_default_str();
  verb->add_option("--window", flags->window, "Tokens before a token that the model sees at most")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  verb->add_option("--dtype", flags->dtype, "The dtype to compute in")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  verb->add_flag("--quantized", flags->quantized,
                 "Compute with the quantized weights of a GGUF file as they are; activations are rounded to 8 bits");
  add_quantize_flags(*verb, flags->quantize);
  add_cache_dtype_flag(*verb, flags->cache_dtype);
  verb->add_flag("--json", flags->json,
                 "One object: model, documents, tokens, bytes, log_probability, perplexity, bits_per_byte; or model, "
                 "step, rows, auc, calibration, loss, and best_auc where it is known");
  verb->callback([flags, verb, &action] {
    for (const CLI::Option* option : verb->get_options()) {
      const std::string name = option->get_name();
      const bool is_of_all =
          name == "model" || name == "--data" || name == "--json" || (name == "--dtype" && flags->dtype == "float32");
      if (option->count() > 0 && !is_of_all) flags->of_texts.push_back(name);
    }
    action = [flags] { return run_eval(*flags); };
  });
}

}  // namespace tutti::cli
