#include "tutti/io/token_stream.h"

#include <algorithm>

#include "tutti/core/error.h"

namespace tutti {

DocumentFrame document_frame(const Tokenizer& tokenizer) {
  const std::optional<int32_t> end = tokenizer.eos_id();
  TUTTI_CHECK(end.has_value(),
              "tokenizer {} has no EOS token to end documents with; name one as eos_token in a tokenizer_config.json "
              "beside tokenizer.json",
              tokenizer.name());
  return {tokenizer.bos_id().value_or(*end), *end};
}

TokenStream::TokenStream(TokenCorpus corpus, std::vector<int64_t> documents, DocumentFrame frame,
                         int64_t sequence_length)
    : corpus_(std::move(corpus)), documents_(std::move(documents)), frame_(frame), sequence_length_(sequence_length) {
  TUTTI_CHECK(sequence_length >= 1, "sequence_length is {}, expected at least 1", sequence_length);
  pair_ends_.reserve(documents_.size());
  int64_t pairs = 0;
  for (const int64_t document : documents_) {
    pairs += static_cast<int64_t>(corpus_.document(document).size()) + 1;
    pair_ends_.push_back(pairs);
  }
}

int64_t TokenStream::documents_in_rows(int64_t rows) const {
  const int64_t pairs = std::min(rows * sequence_length_, pair_count());
  return std::lower_bound(pair_ends_.begin(), pair_ends_.end(), pairs) - pair_ends_.begin() + (pairs > 0 ? 1 : 0);
}

void TokenStream::read_row(int64_t row, std::span<int32_t> inputs, std::span<int32_t> labels,
                           std::span<int32_t> positions) const {
  TUTTI_CHECK(row >= 0 && row < row_count(), "there is no row {}; the text gives {} rows of {} tokens", row,
              row_count(), sequence_length_);
  const int64_t first_pair = row * sequence_length_;
  int64_t d = std::upper_bound(pair_ends_.begin(), pair_ends_.end(), first_pair) - pair_ends_.begin();
  int64_t pair = first_pair - (d > 0 ? pair_ends_[static_cast<size_t>(d) - 1] : 0);  // within document d
  for (int64_t t = 0; t < sequence_length_; ++d, pair = 0) {
    const std::span<const int32_t> text = corpus_.document(documents_[static_cast<size_t>(d)]);
    const int64_t count = static_cast<int64_t>(text.size());
    for (int64_t position = 0; pair <= count && t < sequence_length_; ++pair, ++position, ++t) {
      inputs[static_cast<size_t>(t)] = pair == 0 ? frame_.start : text[static_cast<size_t>(pair) - 1];
      labels[static_cast<size_t>(t)] = pair == count ? frame_.end : text[static_cast<size_t>(pair)];
      positions[static_cast<size_t>(t)] = static_cast<int32_t>(position);
    }
  }
}

}  // namespace tutti
