// A corpus as token ids, divided into documents.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/text_counts.h"
#include "tutti/io/tokenizer.h"

namespace tutti {

// A value type whose copies share the tokens. Immutable, so any thread may read.
class TokenCorpus {
 public:
  // `offsets` has one more entry than there are documents; document i is tokens[offsets[i] .. offsets[i + 1]).
  // `owner` keeps both alive.
  // `counts` tells of the text that the tokens were made of.
  TokenCorpus(std::span<const int64_t> offsets, std::span<const int32_t> tokens, std::shared_ptr<const void> owner,
              const TextCounts& counts = {})
      : offsets_(offsets), tokens_(tokens), owner_(std::move(owner)), counts_(counts) {}

  int64_t document_count() const { return static_cast<int64_t>(offsets_.size()) - 1; }
  int64_t token_count() const { return static_cast<int64_t>(tokens_.size()); }
  // The tokens of a document's text, without BOS and EOS.
  std::span<const int32_t> document(int64_t index) const;
  std::span<const int64_t> offsets() const { return offsets_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  const TextCounts& counts() const { return counts_; }
  // Equal hashes mean equal documents in equal order, and hence, with the same BOS and EOS, equal rows. Reads all
  // tokens.
  uint64_t content_hash() const;

 private:
  std::span<const int64_t> offsets_;
  std::span<const int32_t> tokens_;
  std::shared_ptr<const void> owner_;
  TextCounts counts_;
};

// Tokenizes documents as they are added.
class TokenCorpusBuilder {
 public:
  explicit TokenCorpusBuilder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void add(std::string_view document);
  TokenCorpus finish(const TextCounts& counts = {});

 private:
  const Tokenizer& tokenizer_;
  std::vector<int64_t> offsets_ = {0};
  std::vector<int32_t> tokens_;
};

TokenCorpus tokenize(std::span<const std::string> documents, const Tokenizer& tokenizer);

}  // namespace tutti
