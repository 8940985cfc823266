#include "tutti/io/token_corpus.h"

#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti {

std::span<const int32_t> TokenCorpus::document(int64_t index) const {
  TUTTI_CHECK(index >= 0 && index < document_count(), "the corpus has no document {}; there are {}", index,
              document_count());
  const int64_t begin = offsets_[static_cast<size_t>(index)];
  const int64_t end = offsets_[static_cast<size_t>(index) + 1];
  return tokens_.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

uint64_t TokenCorpus::content_hash() const {
  return hash64(tokens_.data(), tokens_.size_bytes(), hash64(offsets_.data(), offsets_.size_bytes(), 0));
}

void TokenCorpusBuilder::add(std::string_view document) {
  // Markers in a corpus, such as those of chats, were put there by whoever prepared it.
  tokenizer_.encode_into(document, tokens_, {.parse_special = true});
  offsets_.push_back(static_cast<int64_t>(tokens_.size()));
}

TokenCorpus TokenCorpusBuilder::finish(const TextCounts& counts) {
  struct Owned {
    std::vector<int64_t> offsets;
    std::vector<int32_t> tokens;
  };
  auto owned = std::make_shared<Owned>(Owned{std::move(offsets_), std::move(tokens_)});
  offsets_ = {0};
  tokens_.clear();
  return TokenCorpus(owned->offsets, owned->tokens, owned, counts);
}

TokenCorpus tokenize(std::span<const std::string> documents, const Tokenizer& tokenizer) {
  TokenCorpusBuilder builder(tokenizer);
  for (const std::string& document : documents) builder.add(document);
  return builder.finish();
}

}  // namespace tutti
