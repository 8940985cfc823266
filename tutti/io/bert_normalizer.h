// BERT's normalization of text and its division into words, as BertNormalizer and BertPreTokenizer of HuggingFace
// tokenizers do them.
// Source: Devlin, Chang, Lee, Toutanova, "BERT: Pre-training of deep bidirectional transformers for language
// understanding" (NAACL 2019), the tokenizer published with it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::io {

struct BertNormalization {
  // Removes control characters and makes each white space a space.
  bool clean_text = true;
  // Puts spaces around each CJK ideograph.
  bool handle_chinese_chars = true;
  // Removes nonspacing marks after canonical decomposition; nullopt: as `lowercase`.
  std::optional<bool> strip_accents;
  bool lowercase = true;
};

// Normalized `text`. Bytes that are not UTF-8 count as U+FFFD each.
std::string bert_normalized(std::string_view text, const BertNormalization& options);

// The words of `text`, which must be UTF-8: what stands between white space, and each punctuation character alone.
std::vector<std::string_view> bert_words(std::string_view text);

}  // namespace tutti::io
