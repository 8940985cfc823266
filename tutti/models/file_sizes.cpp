#include "tutti/models/file_sizes.h"

#include <algorithm>

#include <fmt/format.h>

#include "tutti/codegen/blocks/block_product.h"
#include "tutti/io/gguf_header.h"
#include "tutti/models/decoder_parameters.h"
#include "tutti/models/gguf_tensors.h"

namespace tutti::models {
namespace {

constexpr std::string_view kLayers = "model.layers.", kWeight = ".weight";

// The weights of a source of bf16 numbers.
std::vector<SourceWeight> weights_of(const DecoderConfig& config) {
  std::vector<DecoderParameter> all = decoder_parameters(config);
  for (DecoderParameter& buffer : decoder_buffers(config)) all.push_back(std::move(buffer));
  std::vector<SourceWeight> weights;
  for (const DecoderParameter& p : all) weights.push_back({.name = p.name, .sizes = p.sizes, .dtype = DType::bf16});
  return weights;
}

std::string kind_of(const DecoderConfig& config, const GgufTensor& tensor) {
  std::string_view name = tensor.weight->name;
  if (tensor.weight->is_f32_in_gguf()) return "norms, routers, scalars";
  if (name == "model.embed_tokens.weight" && config.tied_embeddings) return "embed_tokens and head";
  if (name.starts_with(kLayers)) name.remove_prefix(name.find('.', kLayers.size()) + 1);
  else if (name.starts_with("model.")) name.remove_prefix(6);
  if (name.ends_with(kWeight)) name.remove_suffix(kWeight.size());
  return tensor.second == nullptr ? std::string(name) : fmt::format("{} and w3", name);
}

int64_t kept_nbytes_of(const GgufTensor& tensor) {
  const bool is_kept = tensor.entry.blocks && codegen::can_multiply(*tensor.entry.blocks);
  return is_kept ? tensor.nbytes() : numel_of(tensor.entry.sizes) * itemsize(DType::f32);
}

std::string in_gb(int64_t nbytes) { return fmt::format("{:>9.3f}", static_cast<double>(nbytes) / 1e9); }

}  // namespace

FileSizes file_sizes(const DecoderConfig& config, const std::vector<FileType>& types) {
  const std::vector<SourceWeight> weights = weights_of(config);
  FileSizes sizes{.types = types,
                  .kinds = {},
                  .file_nbytes = std::vector<int64_t>(types.size()),
                  .kept_nbytes = std::vector<int64_t>(types.size())};
  for (size_t t = 0; t < types.size(); ++t) {
    GgufFormats formats(config, types[t]);
    for (const GgufTensor& tensor : gguf_tensors(config, weights, formats)) {
      const std::string name = kind_of(config, tensor);
      auto kind = std::find_if(sizes.kinds.begin(), sizes.kinds.end(), [&](const auto& k) { return k.name == name; });
      if (kind == sizes.kinds.end()) {
        sizes.kinds.push_back({.name = name, .nbytes = std::vector<int64_t>(types.size())});
        kind = std::prev(sizes.kinds.end());
      }
      if (t == 0) ++kind->tensors, kind->parameters += numel_of(tensor.entry.sizes);
      kind->nbytes[t] += tensor.nbytes();
      sizes.file_nbytes[t] += io::gguf_padded(tensor.nbytes(), io::kGgufAlignment);
      sizes.kept_nbytes[t] += kept_nbytes_of(tensor);
    }
  }
  return sizes;
}

std::string file_sizes_text(const DecoderConfig& config, const FileSizes& sizes) {
  int64_t parameters = 0;
  for (const WeightKind& kind : sizes.kinds) parameters += kind.parameters;
  std::string text = fmt::format("{}: {} numbers; GB of 10^9 bytes in GGUF files\n{:<34}{:>8}{:>15}", config.name(),
                                 parameters, "", "tensors", "numbers");
  for (const FileType type : sizes.types) text += fmt::format("{:>9}", row_of(type).name);
  for (const WeightKind& kind : sizes.kinds) {
    text += fmt::format("\n{:<34}{:>8}{:>15}", kind.name, kind.tensors, kind.parameters);
    for (const int64_t nbytes : kind.nbytes) text += in_gb(nbytes);
  }
  const auto total = [&](const char* name, const std::vector<int64_t>& all) {
    text += fmt::format("\n{:<57}", name);
    for (const int64_t nbytes : all) text += in_gb(nbytes);
  };
  total("file, without header and vocabulary", sizes.file_nbytes);
  total("weights in memory with --quantized, the others in f32", sizes.kept_nbytes);
  return text + "\n";
}

}  // namespace tutti::models
