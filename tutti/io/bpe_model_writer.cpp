#include <nlohmann/json.hpp>

#include "tutti/io/bpe_model.h"
#include "tutti/io/byte_alphabet.h"

namespace tutti::io {

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
    if (model.vocab[id]) entries.Container::emplace_back(to_byte_alphabet(*model.vocab[id]), static_cast<int64_t>(id));
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

}  // namespace tutti::io
