#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/quantize_flags.h"
#include "tutti/train/sentence_model.h"

namespace tutti::cli {
namespace {

struct EmbedFlags {
  std::string model;
  std::vector<std::string> texts;
  bool similarity = false;
  train::QuantizeSettings quantize;
};

int run_embed(const EmbedFlags& flags) {
  const train::SentenceModel model(flags.model, flags.quantize);
  std::vector<std::vector<float>> embeddings;
  for (const std::string& text : flags.texts) embeddings.push_back(model.embed(text));
  if (!flags.similarity) {
    for (size_t i = 0; i < embeddings.size(); ++i)
      std::printf("%s\n", nlohmann::json{{"text", flags.texts[i]}, {"embedding", embeddings[i]}}
                              .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                              .c_str());
    return 0;
  }
  for (const std::vector<float>& a : embeddings) {
    for (const std::vector<float>& b : embeddings) {
      double product = 0;
      for (size_t i = 0; i < a.size(); ++i) product += static_cast<double>(a[i]) * b[i];
      std::printf("%7.4f", product);
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace

void add_embed(CLI::App& app, Action& action) {
  auto flags = std::make_shared<EmbedFlags>();
  CLI::App* verb = app.add_subcommand("embed", "Embed texts with a published encoder, such as all-MiniLM-L6-v2");
  verb->add_option("model", flags->model, "A folder with config.json, tokenizer.json and weights")->required();
  verb->add_option("texts", flags->texts, "Texts, each of which gets a line {\"text\", \"embedding\"}")->required();
  verb->add_flag("--similarity", flags->similarity, "Print the cosines between all texts in the place of embeddings");
  add_quantize_flags(*verb, flags->quantize);
  verb->callback([flags, &action] { action = [flags] { return run_embed(*flags); }; });
}

}  // namespace tutti::cli
