#include "tutti/models/gguf_vocabulary_writer.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/io/bpe_model.h"
#include "tutti/io/byte_alphabet.h"
#include "tutti/io/gguf_vocabulary.h"
#include "tutti/io/published_tokenizer.h"
#include "tutti/io/sentence_piece_tokenizer.h"
#include "tutti/models/gguf_pieces_writer.h"
#include "tutti/runtime/json_document.h"

namespace tutti::models {
namespace {

namespace fs = std::filesystem;

enum TokenType : int32_t { kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5 };

constexpr size_t kMostBytes = size_t{1} << 30;

std::string text_in(const fs::path& file) {
  return fs::exists(file) ? read_regular_file(file.string(), kMostBytes) : std::string();
}

// The splitting that a file names for these patterns; null: it has no name for them.
const GgufSplitting* splitting_of(const BpeModel& model) {
  for (const GgufSplitting& known : gguf_splittings()) {
    if (!model.prefix_space_after && known.split_patterns == model.split_patterns) return &known;
  }
  return nullptr;
}

// Says what a file with this splitting cannot, so that its reader would make other ids; "" where nothing is lost.
std::string lost_in_gguf(const BpeModel& model, const GgufSplitting& splitting) {
  if (model.normalizes_nfc != splitting.normalizes_nfc)
    return model.normalizes_nfc ? "it normalizes texts" : "it does not normalize texts";
  if (model.ignores_merges != splitting.ignores_merges)
    return model.ignores_merges ? "whole tokens are not merged" : "whole tokens are merged, too";
  for (const AddedToken& token : model.added_tokens) {
    if (token.lstrip || token.rstrip || token.single_word)
      return fmt::format("{} is found with a flag (lstrip, rstrip or single_word)", token.content);
    // The flag means nothing where texts are not normalized, and all tokens are looked for together.
    if (token.normalized && (model.normalizes_nfc || token.normalized != model.added_tokens.front().normalized))
      return fmt::format("{} is looked for in the normalized text", token.content);
  }
  const bool is_framed_by_one = model.frame.before.size() <= 1 && model.frame.after.size() <= 1;
  return is_framed_by_one ? "" : "texts are framed by several tokens";
}

struct Tokens {
  std::vector<std::string> texts;
  std::vector<int32_t> types;
};

// Ids that nothing gives a text get one, as readers need a text for each row of the embedding.
Tokens tokens_of(const BpeModel& model, int64_t vocab) {
  Tokens all;
  for (int64_t id = 0; id < vocab; ++id) {
    const bool is_known = id < std::ssize(model.vocab) && model.vocab[static_cast<size_t>(id)];
    all.texts.push_back(is_known ? io::to_byte_alphabet(*model.vocab[static_cast<size_t>(id)])
                                 : fmt::format("[PAD{}]", id));
    all.types.push_back(is_known ? kNormal : kUnused);
  }
  for (const AddedToken& token : model.added_tokens) {
    const bool is_marker = token.content.starts_with("<|") && token.content.ends_with("|>");
    const auto at = static_cast<size_t>(token.id);
    all.texts[at] = token.content;
    all.types[at] = token.special || is_marker ? kControl : kUserDefined;
  }
  return all;
}

std::vector<std::string> merges_of(const BpeModel& model) {
  const auto text = [&](int32_t id) { return io::to_byte_alphabet(*model.vocab[static_cast<size_t>(id)]); };
  std::vector<std::string> merges;
  for (const io::BpeMerge& merge : model.merges)
    merges.push_back(fmt::format("{} {}", text(merge.left), text(merge.right)));
  return merges;
}

template <class Model>
int64_t ids_of_tokens(const Model& model) {
  int64_t most = std::ssize(model.vocab);
  for (const AddedToken& token : model.added_tokens) most = std::max<int64_t>(most, token.id + 1);
  return most;
}

void set_id(const char* token, const std::optional<int64_t>& id, ModelMetadata& metadata) {
  if (id && *id >= 0 && *id < int64_t{1} << 31)
    metadata.set(fmt::format("tokenizer.ggml.{}_token_id", token), static_cast<uint32_t>(*id));
}

// The id of the token under this key: its text, or an object with that.
template <class Model>
std::optional<int64_t> id_under(const char* key, const JsonValue& config, const Model& model) {
  const std::optional<JsonValue> token = config.find_set(key);
  if (!token) return std::nullopt;
  const std::string_view text = token->is_object() ? token->at("content").text() : token->text();
  for (const AddedToken& added : model.added_tokens) {
    if (added.content == text) return added.id;
  }
  return std::nullopt;
}

// The model's tokens, with those that tokenizer_config.json names: the model may name several ends.
template <class Model>
void write_ids(const Model& model, const JsonValue& config, const PublishedFacts& facts, ModelMetadata& metadata) {
  std::optional<int64_t> bos = facts.bos_token, eos, pad = facts.pad_token;
  metadata.set("tokenizer.ggml.add_bos_token", !model.frame.before.empty());
  metadata.set("tokenizer.ggml.add_eos_token", !model.frame.after.empty());
  if (!facts.eos_tokens.empty()) eos = facts.eos_tokens.front();
  else if (model.eos_id) eos = *model.eos_id;
  for (const auto& [key, id] : {std::pair{"bos_token", &bos}, {"eos_token", &eos}, {"pad_token", &pad}}) {
    if (const std::optional<int64_t> named = id_under(key, config, model)) *id = named;
  }
  // A reader frames texts by these two.
  if (!model.frame.before.empty()) bos = model.frame.before[0];
  if (!model.frame.after.empty()) eos = model.frame.after[0];
  set_id("bos", bos, metadata), set_id("eos", eos, metadata), set_id("padding", pad, metadata);
}

// What tokenizer_config.json says about conversations, and the template that may stand beside it.
void write_conversation(const std::string& in_file, const JsonValue& config, ModelMetadata& metadata) {
  if (!in_file.empty()) metadata.set("tokenizer.chat_template", in_file);
  const auto of_config = config.find_set("chat_template");
  if (in_file.empty() && of_config && of_config->is_text())
    metadata.set("tokenizer.chat_template", of_config->string());
}

}  // namespace

std::optional<std::string> write_gguf_vocabulary(const fs::path& folder, int64_t vocab, const PublishedFacts& facts,
                                                 ModelMetadata& metadata) {
  metadata.set("tokenizer.ggml.model", "none");
  const fs::path file = folder / "tokenizer.json";
  if (!fs::exists(file)) return fmt::format("{} has no tokenizer.json.", folder.string());
  try {
    const std::string config = text_in(folder / "tokenizer_config.json");
    const std::string json = text_in(file);
    const JsonDocument document(config.empty() ? "{}" : config, {.name = (folder / "tokenizer_config.json").string()});
    const auto tokenizer = parse_tokenizer(json, config, file.string());
    if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(tokenizer.get())) {
      const SentencePieceModel& of = pieces->model();
      if (ids_of_tokens(of) > vocab)
        return fmt::format("{} has {} ids, and the model's vocabulary {}.", file.string(), ids_of_tokens(of), vocab);
      // llama.cpp looks for merges in files of Gemma 4, and for scores in others.
      const auto architecture = metadata.find("general.architecture");
      const bool is_ranked = architecture && architecture->text() == "gemma4";
      if (auto missing = (is_ranked ? write_gguf_ranked_pieces : write_gguf_pieces)(of, file.string(), vocab, metadata))
        return missing;
      write_ids(of, document.top(), facts, metadata);
      write_conversation(text_in(folder / "chat_template.jinja"), document.top(), metadata);
      return std::nullopt;
    }
    const BpeModel model = io::parse_tokenizer_json(json, config, file.string());
    const GgufSplitting* splitting = splitting_of(model);
    if (splitting == nullptr)
      return fmt::format("llama.cpp has no name for the way in which {} splits texts.", file.string());
    if (ids_of_tokens(model) > vocab)
      return fmt::format("{} has {} ids, and the model's vocabulary {}.", file.string(), ids_of_tokens(model), vocab);
    if (const std::string lost = lost_in_gguf(model, *splitting); !lost.empty())
      return fmt::format("A GGUF file cannot say of {} that {}.", file.string(), lost);
    Tokens tokens = tokens_of(model, vocab);
    metadata.set("tokenizer.ggml.model", "gpt2");  // byte-level BPE
    metadata.set("tokenizer.ggml.pre", std::string(splitting->pre));
    metadata.set("tokenizer.ggml.tokens", std::move(tokens.texts));
    metadata.set("tokenizer.ggml.token_type", tokens.types);
    metadata.set("tokenizer.ggml.merges", merges_of(model));
    write_ids(model, document.top(), facts, metadata);
    write_conversation(text_in(folder / "chat_template.jinja"), document.top(), metadata);
  } catch (const UsageError& error) {
    return fmt::format("{}.", error.what());
  }
  return std::nullopt;
}

}  // namespace tutti::models
