// Division of a text into added tokens and the stretches between them, in the order of HuggingFace tokenizers: first
// the tokens that are matched in the text as given, then, in what is left, normalized, the others.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/added_tokens.h"
#include "tutti/io/regex_split.h"

namespace tutti::io {

// Normalizes `text`, returning it or a view of `storage`. Empty for tokenizers without a normalizer.
using NormalizeText = std::function<std::string_view(std::string_view text, std::string& storage)>;

// Immutable; any thread may call as far as any thread may call `normalize`.
class AddedTokenSplitter {
 public:
  AddedTokenSplitter(std::vector<AddedToken> tokens, NormalizeText normalize);
  AddedTokenSplitter(const AddedTokenSplitter&) = delete;
  AddedTokenSplitter& operator=(const AddedTokenSplitter&) = delete;

  // Calls `on_text` with each stretch of normalized text and `on_token` with the id of each token between, in order.
  // Special tokens are text unless `parse_special`.
  void split(std::string_view text, bool parse_special, const std::function<void(std::string_view)>& on_text,
             const std::function<void(int32_t)>& on_token) const;

 private:
  void split_by(const AddedTokenFinder& finder, std::string_view text, bool parse_special,
                const std::function<void(std::string_view)>& on_text,
                const std::function<void(int32_t)>& on_token) const;
  bool touches_word(std::string_view text, size_t begin, size_t end) const;

  std::vector<AddedToken> as_given_;
  std::vector<AddedToken> normalized_;  // with normalized contents
  AddedTokenFinder as_given_finder_, normalized_finder_;
  NormalizeText normalize_;
  std::optional<RegexSplitter> word_;  // with single_word tokens only
};

}  // namespace tutti::io
