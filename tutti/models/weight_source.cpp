#include "tutti/models/weight_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "tutti/core/block_codec.h"
#include "tutti/core/error.h"
#include "tutti/models/decoder_parameters.h"
#include "tutti/models/gguf_decoder.h"
#include "tutti/models/published_config.h"
#include "tutti/nn/code_entries.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/slice.h"

namespace tutti::models {
namespace {

constexpr const char *kEmbedding = "model.embed_tokens.weight", *kHead = "lm_head.weight";
constexpr std::string_view kRouter = ".gate.weight", kRouterBias = ".gate.expert_bias";
constexpr int64_t kMostId = int64_t{1} << 31;

bool has_bytes_of(const ModelTensor& a, const ModelTensor& b) {
  return a.dtype == b.dtype && a.blocks == b.blocks && a.sizes == b.sizes && !a.bytes.empty() &&
         a.bytes.size() == b.bytes.size() && std::memcmp(a.bytes.data(), b.bytes.data(), a.bytes.size()) == 0;
}

std::vector<int64_t> ids_of(const std::optional<JsonValue>& found) {
  std::vector<int64_t> ids;
  if (!found) return ids;
  if (!found->is_array()) return {found->whole(-1, kMostId)};
  for (const auto& [_, id] : *found) ids.push_back(id.whole(0, kMostId));
  return ids;
}

std::optional<int64_t> id_of(const std::vector<int64_t>& ids) {
  return ids.empty() || ids[0] < 0 ? std::nullopt : std::optional(ids[0]);
}

PublishedFacts facts_of_gguf(const ModelFile& file) {
  const auto whole = [&](const std::string& key) -> std::optional<int64_t> {
    const std::optional<MetadataField> field = file.metadata().find(key);
    return field ? std::optional(field->whole(0, kMostId * 2)) : std::nullopt;
  };
  PublishedFacts facts{.positions = whole(gguf_architecture(file) + ".context_length"),
                       .bos_token = whole("tokenizer.ggml.bos_token_id"),
                       .pad_token = whole("tokenizer.ggml.padding_token_id")};
  if (const auto eos = whole("tokenizer.ggml.eos_token_id")) facts.eos_tokens = {*eos};
  return facts;
}

}  // namespace

int64_t SourceWeight::nbytes() const {
  const int64_t numel = numel_of(sizes);
  return blocks ? block_nbytes(*blocks, numel).value_or(0) : numel * itemsize(dtype);
}

bool SourceWeight::is_f32_in_gguf() const { return sizes.ndim() == 1 || name.ends_with(kRouter); }

WeightSource::WeightSource(const PublishedModel& model)
    : model_(model), tensors_(model_.file(), [](const std::string&) { return true; }), config_(model_.config()) {
  const ModelFile& file = model_.file();
  std::map<std::string_view, const nn::GroupedTensors::Entry*> entries;
  for (const nn::GroupedTensors::Entry& entry : tensors_.entries()) entries.emplace(entry.name, &entry);
  check_head();
  for (const nn::GroupedTensors::Entry& entry : tensors_.entries()) {
    const std::optional<nn::CodeName> code = nn::code_name_in(entry.name);
    TUTTI_CHECK(!code, "{} holds '{}' as codes ({}); convert the model that it was made from", file.path(),
                code->parameter, name_of(code->kind));
  }
  std::vector<std::string> faults;
  std::set<std::string_view> known;
  std::vector<DecoderParameter> expected = decoder_parameters(config_);
  for (DecoderParameter& buffer : decoder_buffers(config_)) expected.push_back(std::move(buffer));
  for (const DecoderParameter& p : expected) {
    const auto found = entries.find(p.name);
    if (found == entries.end()) {
      faults.push_back("missing: " + p.name);
      continue;
    }
    const nn::GroupedTensors::Entry& entry = *found->second;
    known.insert(entry.name);
    if (entry.sizes != p.sizes) faults.push_back(fmt::format("{}: {}, expected {}", p.name, entry.text, p.sizes));
    weights_.push_back({.name = p.name,
                        .sizes = p.sizes,
                        .dtype = entry.dtype,
                        .blocks = file.contains(p.name) ? file.entry(p.name).blocks : std::nullopt});
  }
  for (const nn::GroupedTensors::Entry& entry : tensors_.entries()) {
    if (!known.contains(entry.name) && !is_ignored(entry.name)) faults.push_back("unexpected: " + entry.name);
  }
  constexpr size_t most = 8;
  std::string list;
  for (size_t i = 0; i < std::min(most, faults.size()); ++i) list += "\n  " + faults[i];
  if (faults.size() > most) list += fmt::format("\n  and {} more", faults.size() - most);
  TUTTI_CHECK(faults.empty(), "{} does not have the tensors of {}:{}", file.path(), config_.name(), list);
}

// A head that is the embedding is stored once.
void WeightSource::check_head() {
  const ModelFile& file = model_.file();
  if (!file.contains(kHead) || !file.contains(kEmbedding)) return;
  const bool is_same = has_bytes_of(file.entry(kHead), file.entry(kEmbedding));
  TUTTI_CHECK(is_same || !config_.tied_embeddings,
              "{}: {} differs from {}, and the description says that the head is the embedding; expected equal values, "
              "or tie_word_embeddings = false",
              file.path(), kHead, kEmbedding);
  config_.tied_embeddings = is_same;
}

// Frequencies of older files, biases of routers that are 0, the head of tied embeddings, and projections of keys that a
// layer shares with another.
bool WeightSource::is_ignored(const std::string& name) const {
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    if (!config_.layers[i].attention.shared_layer) continue;
    for (const char* part : {"k_proj", "v_proj", "k_norm"})
      if (name == fmt::format("model.layers.{}.self_attn.{}.weight", i, part)) return true;
  }
  if (name.ends_with(".rotary_emb.inv_freq") || (config_.tied_embeddings && name == kHead)) return true;
  if (!name.ends_with(kRouterBias)) return false;
  const Tensor bias = to_contiguous(cast(tensors_.tensor(name), DType::f32));
  return std::all_of(bias.data<float>(), bias.data<float>() + bias.numel(), [](float v) { return v == 0; });
}

const SourceWeight& WeightSource::weight(std::string_view name) const {
  const auto found =
      std::find_if(weights_.begin(), weights_.end(), [&](const SourceWeight& w) { return w.name == name; });
  TUTTI_CHECK(found != weights_.end(), "{} has no weight '{}'", config_.name(), name);
  return *found;
}

int64_t WeightSource::nbytes() const {
  int64_t sum = 0;
  for (const SourceWeight& weight : weights_) sum += weight.nbytes();
  return sum;
}

int64_t WeightSource::repeated_nbytes() const {
  const ModelFile& file = model_.file();
  const bool is_repeated = config_.tied_embeddings && file.contains(kHead) && file.contains(kEmbedding);
  return is_repeated ? std::ssize(file.entry(kHead).bytes) : 0;
}

std::string note_of_repeated(const WeightSource& source) {
  return fmt::format("The head is the embedding and is stored once, where the source has its {:.1f} MB twice.",
                     static_cast<double>(source.repeated_nbytes()) / 1e6);
}

DType WeightSource::main_dtype() const {
  std::map<DType, int64_t> elements;
  for (const SourceWeight& weight : weights_) elements[weight.dtype] += numel_of(weight.sizes);
  const auto most = std::max_element(elements.begin(), elements.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most->first == DType::bf16 || most->first == DType::f16 ? most->first : DType::f32;
}

Tensor WeightSource::values_of_expert(const SourceWeight& weight, int64_t expert) const {
  const ModelFile& file = model_.file();
  const std::string published = nn::published_expert_name(weight.name, expert);
  if (file.contains(published)) return file.tensor(published);
  if (!weight.blocks) return select(file.tensor(weight.name), 0, expert);
  // Only the blocks of this expert are decoded.
  const std::span<const std::byte> bytes = file.entry(weight.name).bytes;
  const size_t nbytes = bytes.size() / static_cast<size_t>(weight.sizes[0]);
  const Tensor values = Tensor::empty({weight.sizes[1], weight.sizes[2]}, DType::f32);
  decode_blocks(*weight.blocks, bytes.subspan(static_cast<size_t>(expert) * nbytes, nbytes),
                {static_cast<float*>(values.raw_data()), static_cast<size_t>(values.numel())});
  return values;
}

PublishedFacts WeightSource::facts() const {
  if (folder().empty()) return facts_of_gguf(model_.file());
  PublishedConfig config(folder() / "config.json");
  PublishedFacts facts{.bos_token = id_of(ids_of(config.find("bos_token_id"))),
                       .pad_token = id_of(ids_of(config.find("pad_token_id"))),
                       .eos_tokens = ids_of(config.find("eos_token_id"))};
  if (const auto positions = config.find("max_position_embeddings")) facts.positions = positions->whole(1, kMostId);
  return facts;
}

std::filesystem::path WeightSource::folder() const {
  if (model_.file().format() == "gguf") return {};
  return std::filesystem::absolute(model_.path()).parent_path();
}

Tensor converted_weight(const std::string& name, const Tensor& values, DType dtype) {
  const Tensor result = to_contiguous(cast(values, dtype));
  if (dtype != DType::f16 || values.dtype() == DType::f16) return result;
  constexpr uint16_t magnitude = 0x7fff, infinite = 0x7c00;
  const auto* bits = static_cast<const uint16_t*>(result.raw_data());
  const Tensor dense = to_contiguous(values);
  for (int64_t i = 0; i < result.numel(); ++i) {
    if ((bits[i] & magnitude) != infinite) continue;
    const double value =
        load_as_double(static_cast<const std::byte*>(dense.raw_data()) + i * itemsize(dense.dtype()), dense.dtype());
    TUTTI_CHECK(std::isinf(value), "{}: element {} is {:.6g}, and f16 holds at most 65504; write bf16 or f32", name, i,
                value);
  }
  return result;
}

}  // namespace tutti::models
