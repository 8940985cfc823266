#include "tutti/train/ready_model.h"

#include <algorithm>
#include <set>

#include "tutti/codegen/blocks/block_product.h"
#include "tutti/core/error.h"
#include "tutti/io/mapped_file.h"
#include "tutti/io/model_file.h"
#include "tutti/io/tokenizer_source.h"
#include "tutti/models/generation_defaults.h"
#include "tutti/models/published_model.h"
#include "tutti/nn/code_entries.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

// A GGUF file mostly holds its vocabulary; that of other files is beside them.
std::unique_ptr<Tokenizer> tokenizer_of(const ModelFile& file, const fs::path& path) {
  const bool is_inside = file.metadata().contains("tokenizer.ggml.tokens") || fs::is_directory(path);
  return open_tokenizer((is_inside ? path : fs::absolute(path).parent_path()).string(), {}, "");
}

// Weights that are computed with in another dtype than the file's are converted one after another, so that the process
// never holds more than one of them twice.
void convert_weights(const models::Decoder& model, const ModelFile& file) {
  for (const nn::NamedParameter& p : model.named_parameters()) {
    if (!file.contains(p.name) || p.parameter.holds_blocks()) continue;
    if (p.parameter.dtype() == p.parameter.use_dtype()) continue;
    p.parameter.use();
    forget_pages(file.entry(p.name).bytes);
  }
}

void check_has_blocks(const ModelFile& file) {
  std::set<std::string_view> types;
  std::string list;
  bool has_some = false;
  for (const ModelTensor& entry : file.entries()) {
    if (types.insert(entry.type_name()).second) list += fmt::format("{}{}", list.empty() ? "" : " ", entry.type_name());
    has_some = has_some || (entry.blocks && codegen::can_multiply(*entry.blocks));
  }
  TUTTI_CHECK(has_some,
              "{} has no weights that can stay quantized: its tensors are {}; expected a GGUF file with Q4_0 Q4_1 Q5_0 "
              "Q5_1 Q8_0 Q4_K Q5_K or Q6_K (tutti convert --dtype q8_0 writes one), or leave out --quantized",
              file.path(), list);
}

bool has_codes(const ModelFile& file) {
  return std::any_of(file.entries().begin(), file.entries().end(),
                     [](const ModelTensor& entry) { return nn::code_name_in(entry.name).has_value(); });
}

ReadyModel without_weights(const models::DecoderConfig& config, const ModelFile& file, const fs::path& path,
                           int64_t positions, DType compute) {
  ReadyModel ready{std::make_unique<models::Decoder>(config, positions), tokenizer_of(file, path)};
  TUTTI_CHECK(ready.tokenizer->vocab_size() <= config.vocab, "{}: the tokenizer has {} tokens, and the model {}",
              path.string(), ready.tokenizer->vocab_size(), config.vocab);
  ready.ends = models::generation_defaults(file, *ready.tokenizer).eos_token_ids;
  ready.model->to(compute);
  ready.model->eval();
  return ready;
}

// The weights as they are in the file, computed with in `compute`.
ReadyModel in_pages(const models::PublishedModel& published, const fs::path& path, int64_t positions, DType compute,
                    bool keep_blocks) {
  if (keep_blocks) check_has_blocks(published.file());
  ReadyModel ready = without_weights(published.config(), published.file(), path, positions, compute);
  published.load(*ready.model, {.freeze = true, .keep_blocks = keep_blocks});
  return ready;
}

}  // namespace

ReadyModel open_published(const fs::path& path, int64_t positions, DType compute, bool keep_blocks) {
  const models::PublishedModel published(path);
  ReadyModel ready = in_pages(published, path, positions, compute, keep_blocks);
  convert_weights(*ready.model, published.file());
  return ready;
}

ReadyModel open_without_weights(const fs::path& path, int64_t positions) {
  return without_weights(models::published_description(path), ModelFile(path), path, positions, DType::f32);
}

ReadyModel open_divided(const fs::path& path, int64_t positions, DType compute, bool keep_blocks,
                        FunctionRef<void(models::LanguageModel& model)> divide) {
  const models::PublishedModel published(path);
  if (keep_blocks || has_codes(published.file())) {
    ReadyModel ready = in_pages(published, path, positions, compute, keep_blocks);
    divide(*ready.model);
    convert_weights(*ready.model, published.file());
    return ready;
  }
  ReadyModel ready = without_weights(published.config(), published.file(), path, positions, compute);
  divide(*ready.model);
  published.load(*ready.model);
  for (const nn::NamedParameter& p : ready.model->named_parameters()) p.parameter.requires_grad_(false);
  return ready;
}

bool holds_codes(const fs::path& path) { return has_codes(ModelFile(path)); }

std::unique_ptr<Tokenizer> open_published_tokenizer(const fs::path& path) {
  return tokenizer_of(ModelFile(path), path);
}

bool is_published(const fs::path& path) { return !fs::exists(path / "config.resolved.toml") && holds_model(path); }

std::string name_of_path(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace tutti::train
