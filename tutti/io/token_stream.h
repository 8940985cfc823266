// Rows of equal length from concatenated documents.
//
// A document of n tokens is framed as  start t_1 ... t_n end  and gives n + 1 pairs (input, label): every token of the
// text and the end are predicted once, and no label belongs to another document than its input. The pairs of all
// documents, in order, are divided into rows of `sequence_length`; an incomplete last row is dropped. Positions count
// from the start of the document, or from the start of the row where a document continues from the previous row, so
// attention must not look beyond position 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/io/token_corpus.h"

namespace tutti {

// `count` rows, each vector row-major [count, sequence_length].
struct TokenRows {
  int64_t count = 0;
  int64_t sequence_length = 0;
  std::vector<int32_t> inputs;
  std::vector<int32_t> labels;
  std::vector<int32_t> positions;
};

// The ids that frame a document. A tokenizer without BOS begins documents with its EOS, as GPT-2 does.
struct DocumentFrame {
  int32_t start;
  int32_t end;
};
// UsageError when the tokenizer has no EOS.
DocumentFrame document_frame(const Tokenizer& tokenizer);

// Immutable; any thread may read.
class TokenStream {
 public:
  // Streams the documents of `corpus` with the given indices, in that order.
  TokenStream(TokenCorpus corpus, std::vector<int64_t> documents, DocumentFrame frame, int64_t sequence_length);

  int64_t row_count() const { return pair_ends_.empty() ? 0 : pair_ends_.back() / sequence_length_; }
  int64_t pair_count() const { return pair_ends_.empty() ? 0 : pair_ends_.back(); }
  std::span<const int64_t> documents() const { return documents_; }
  // The number of documents, counted from the first, that have a pair in the first `rows` rows.
  int64_t documents_in_rows(int64_t rows) const;
  // Writes one row; each span has sequence_length elements.
  void read_row(int64_t row, std::span<int32_t> inputs, std::span<int32_t> labels, std::span<int32_t> positions) const;

 private:
  TokenCorpus corpus_;
  std::vector<int64_t> documents_;
  std::vector<int64_t> pair_ends_;  // the number of pairs up to and including each document
  DocumentFrame frame_;
  int64_t sequence_length_;
};

}  // namespace tutti
