#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/io/bpe_model.h"
#include "tutti/io/byte_alphabet.h"

namespace tutti::io {
namespace {

// How a token stands in model.vocab: in the alphabet of bytes, but for an added token that is written as it is found in text.
std::string vocab_key(const BpeModel& model, size_t id) {
  const std::string& bytes = *model.vocab[id];
  const bool as_found = std::any_of(model.added_tokens.begin(), model.added_tokens.end(), [&](const AddedToken& token) {
    return token.id == static_cast<int32_t>(id) && token.content == bytes;
  });
  return as_found ? bytes : to_byte_alphabet(bytes);
}

const AddedToken* added_token(const BpeModel& model, std::optional<int32_t> id) {
  const auto found = std::find_if(model.added_tokens.begin(), model.added_tokens.end(), [&](const AddedToken& token) { return token.id == id; });
  return found == model.added_tokens.end() ? nullptr : &*found;
}

}  // namespace

std::string tokenizer_json_of(const BpeModel& model) {
  using Ordered = nlohmann::ordered_json;
  const Ordered byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  Ordered added = Ordered::array();
  for (const AddedToken& token : model.added_tokens) {
    added.push_back({{"id", token.id},       {"content", token.content}, {"single_word", false}, {"lstrip", false},
                     {"rstrip", false},      {"normalized", false},      {"special", token.special}});
  }
  Ordered steps = Ordered::array();
  for (const std::string& pattern : model.split_patterns) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back(byte_level);
  // ordered_json looks keys up one by one, so a vocabulary goes in through the underlying vector.
  Ordered vocab = Ordered::object();
  auto& entries = vocab.get_ref<Ordered::object_t&>();
  for (size_t id = 0; id < model.vocab.size(); ++id) {
    if (model.vocab[id]) entries.Container::emplace_back(vocab_key(model, id), static_cast<int64_t>(id));
  }
  Ordered merges = Ordered::array();
  const auto characters = [&](int32_t id) { return to_byte_alphabet(*model.vocab[static_cast<size_t>(id)]); };
  for (const BpeMerge& merge : model.merges) merges.push_back(characters(merge.left) + " " + characters(merge.right));
  const Ordered root = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", model.normalizes_nfc ? Ordered{{"type", "NFC"}} : Ordered(nullptr)},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", steps}}},
      {"post_processor", byte_level},
      {"decoder", byte_level},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", model.ignores_merges},
        {"vocab", vocab},
        {"merges", merges}}}};
  return root.dump(1) + "\n";
}

std::string tokenizer_config_json_of(const BpeModel& model) {
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  const auto name = [&](const char* key, std::optional<int32_t> id) {
    const AddedToken* token = added_token(model, id);
    root[key] = token ? nlohmann::ordered_json(token->content) : nlohmann::ordered_json(nullptr);
  };
  name("bos_token", model.bos_id);
  name("eos_token", model.eos_id);
  return root.dump(1) + "\n";
}

}  // namespace tutti::io
