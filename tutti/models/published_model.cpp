#include "tutti/models/published_model.h"

#include <fmt/ranges.h>

#include "tutti/core/error.h"
#include "tutti/models/family.h"
#include "tutti/models/gguf_decoder.h"
#include "tutti/models/gguf_names.h"

namespace tutti::models {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGguf = "gguf";

struct OfArchitecture {
  const char* family;
  const GgufArchitecture* row;
};
OfArchitecture family_of(const ModelFile& gguf) {
  const std::string architecture = gguf_architecture(gguf);
  std::vector<std::string_view> known;
  for (const auto& [name, family] : family_table()) {
    for (const GgufArchitecture& row : family->gguf) {
      if (row.name == architecture) return {name, &row};
      known.push_back(row.name);
    }
  }
  throw UsageError(fmt::format("{}: general.architecture is \"{}\"; expected one of: {}", gguf.path(), architecture,
                               fmt::join(known, ", ")));
}

DecoderConfig description(const ModelFile& file, const fs::path& path) {
  if (file.format() == kGguf) {
    const auto [family, row] = family_of(file);
    return read_gguf_decoder(file, family, *row);
  }
  const fs::path config = (fs::is_directory(path) ? path : path.parent_path()) / "config.json";
  TUTTI_CHECK(fs::exists(config), "{} has no config.json beside its weights, which says what is computed with them",
              path.string());
  return read_published_config(config.string());
}

}  // namespace

PublishedModel::PublishedModel(const fs::path& path) : file_(path), config_(description(file_, path)) {
  if (file_.format() == kGguf) file_ = decoder_tensors_of_gguf(file_, config_, family_of(file_).row->is_pair_layout);
}

void PublishedModel::load(nn::Module& model, const nn::LoadOptions& options) const { nn::load(model, file_, options); }

}  // namespace tutti::models
