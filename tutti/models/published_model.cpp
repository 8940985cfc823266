#include "tutti/models/published_model.h"

#include "tutti/core/error.h"
#include "tutti/models/decoder_difference.h"
#include "tutti/models/family.h"
#include "tutti/models/gguf_decoder.h"
#include "tutti/models/gguf_keys.h"
#include "tutti/models/gguf_names.h"
#include "tutti/models/language_model.h"
#include "tutti/models/package_file.h"
#include "tutti/models/published_config.h"
#include "tutti/models/renamed_tensors.h"
#include "tutti/models/stacked_experts.h"

namespace tutti::models {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGguf = "gguf";

struct OfArchitecture {
  const char* family;
  const GgufArchitecture* row;
};
// Families may share an architecture, of which one has experts.
OfArchitecture family_of(const ModelFile& gguf) {
  const std::string architecture = gguf_architecture(gguf);
  const bool has_experts = GgufKeys(gguf, architecture).whole("expert_count", 0) > 0;
  std::vector<std::string> known;
  std::optional<OfArchitecture> found;
  for (const auto& [name, family] : family_table()) {
    for (const GgufArchitecture& row : family->gguf) {
      if (!row.is_read) continue;
      if (row.name == architecture && (!found || row.has_experts == has_experts)) found = {name, &row};
      known.emplace_back(row.name);
    }
  }
  if (found) return *found;
  throw UsageError(fmt::format("{}: general.architecture is \"{}\"; expected one of: {}", gguf.path(), architecture,
                               joined(known, ", ")));
}

fs::path config_beside(const fs::path& path) {
  return (fs::is_directory(path) ? path : path.parent_path()) / "config.json";
}

// The name in this library. Files of models with several parts nest the text model, and hold others beside it.
std::optional<std::string> name_in_text_model(const ModelFamily& family, std::string_view name) {
  for (const std::string_view other :
       {"model.vision_tower.", "vision_tower.", "model.visual.", "visual.", "model.multi_modal_projector.",
        "multi_modal_projector.", "model.audio_tower.", "audio_tower.", "model.embed_vision.", "model.embed_audio."}) {
    if (name.starts_with(other)) return std::nullopt;
  }
  for (const auto& [nested, plain] :
       std::initializer_list<std::pair<std::string_view, std::string_view>>{{"model.language_model.", "model."},
                                                                            {"language_model.model.", "model."},
                                                                            {"language_model.lm_head.", "lm_head."}}) {
    if (name.starts_with(nested)) return own_name(family, fmt::format("{}{}", plain, name.substr(nested.size())));
  }
  return own_name(family, name);
}

ModelFile with_own_names(const ModelFile& file, const std::string& family) {
  const ModelFamily& row = family_named(family);
  return split_stacked_experts(
      renamed_tensors(file, [&row](std::string_view name) { return name_in_text_model(row, name); }));
}

DecoderConfig description(const ModelFile& file, const fs::path& path) {
  if (file.format() == kGguf) {
    const auto [family, row] = family_of(file);
    return read_gguf_decoder(file, family, *row);
  }
  const fs::path config = config_beside(path);
  TUTTI_CHECK(fs::exists(config), "{} has no config.json beside its weights, which says what is computed with them",
              path.string());
  return read_published_config(config.string());
}

}  // namespace

PublishedModel::PublishedModel(const fs::path& path) : file_(path), config_(description(file_, path)) {
  refuse_package(path);
  // Each layer has tensors, so that a number that the file cannot mean takes no memory.
  TUTTI_CHECK(config_.layers.size() <= file_.entries().size(), "{} describes {} layers, and the file has {} tensors",
              file_.format() == kGguf ? path.string() : config_beside(path).string(), config_.layers.size(),
              file_.entries().size());
  file_ = file_.format() == kGguf ? decoder_tensors_of_gguf(file_, config_, family_of(file_).row->is_pair_layout)
                                  : with_own_names(file_, config_.family);
}

void PublishedModel::load(nn::Module& model, const nn::LoadOptions& options) const { nn::load(model, file_, options); }

DecoderConfig published_description(const fs::path& path) {
  const fs::path config = path / "config.json";
  return fs::exists(config) ? read_published_config(config.string()) : description(ModelFile(path), path);
}

bool load_published(LanguageModel& model, const fs::path& path) {
  const ModelFile file(path);
  refuse_package(path);
  const DecoderConfig& own = model.config();
  if (file.format() == kGguf) {
    const PublishedModel published(path);
    check_same_decoder(published.config(), own, path.string());
    published.load(model);
    return true;
  }
  const bool is_compared = fs::exists(config_beside(path));
  if (is_compared) {
    PublishedConfig published(config_beside(path).string());
    family_named(own.family).read(published, &own);
    published.check(own.name());
  }
  nn::load(model, with_own_names(file, own.family));
  return is_compared;
}

}  // namespace tutti::models
