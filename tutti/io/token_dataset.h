// Training and validation rows of a corpus.
//
// Which documents are held out, their order in each epoch, and the tokens of global row i are pure functions of
// (corpus, options, index). They do not depend on the number of ranks, so a run can be resumed on more or fewer.
#pragma once

#include <memory>

#include "tutti/io/token_stream.h"

namespace tutti {

struct TokenDatasetOptions {
  int64_t sequence_length = 256;
  // The fraction of the documents that is held out: round(fraction * documents), at least one and not all; 0 holds out
  // none.
  double validation_fraction = 0.01;
  uint64_t seed = 1;
};

// The position of a run in the data. Global row i of the run is row i % rows_per_epoch of epoch i / rows_per_epoch.
struct DataCursor {
  int64_t epoch = 0;
  int64_t row = 0;
  bool operator==(const DataCursor&) const = default;
};

// Used by one thread at a time, because the order of the current epoch is cached.
class TokenDataset {
 public:
  // UsageError when the training or the held-out text is shorter than one row, or when options are out of range.
  TokenDataset(TokenCorpus corpus, const Tokenizer& tokenizer, const TokenDatasetOptions& options);

  int64_t rows_per_epoch() const { return rows_per_epoch_; }
  DataCursor cursor_at(int64_t global_row) const;
  int64_t global_row_at(DataCursor cursor) const;

  // Rows first_row, first_row + 1, … of the endless sequence of epochs. Each epoch shuffles the documents differently.
  TokenRows training_rows(int64_t first_row, int64_t count);
  // Rows of the held-out documents, which are in a fixed random order.
  TokenRows validation_rows(int64_t first_row, int64_t count) const;
  int64_t validation_row_count() const { return validation_.row_count(); }

  // Indices into the corpus: training documents in ascending order, held-out ones in the order of their rows.
  std::span<const int64_t> training_documents() const { return training_documents_; }
  std::span<const int64_t> validation_documents() const { return validation_.documents(); }
  // The held-out documents of which the first `rows` validation rows contain a part.
  std::span<const int64_t> validation_documents_in(int64_t rows) const;
  const TokenCorpus& corpus() const { return corpus_; }

 private:
  const TokenStream& epoch(int64_t index);

  TokenCorpus corpus_;
  TokenDatasetOptions options_;
  DocumentFrame frame_;
  std::vector<int64_t> training_documents_;
  TokenStream validation_;
  int64_t rows_per_epoch_ = 0;
  int64_t epoch_index_ = -1;
  std::unique_ptr<TokenStream> epoch_;
};

}  // namespace tutti
