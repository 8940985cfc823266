#include "tutti/io/token_dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/core/philox.h"

namespace tutti {
namespace {

// 64 random bits for (what, seed, index, step).
uint64_t random_word(std::string_view what, uint64_t seed, int64_t index, int64_t step) {
  const PhiloxKey low = philox_key(static_cast<uint64_t>(index));
  const PhiloxKey high = philox_key(static_cast<uint64_t>(step));
  const auto words = philox4x32({low[0], low[1], high[0], high[1]}, philox_key(hash64(what, seed)));
  return (uint64_t{words[1]} << 32) | words[0];
}

int64_t held_out_count(int64_t documents, double fraction) {
  TUTTI_CHECK(fraction >= 0.0 && fraction < 1.0, "validation_fraction is {}, expected 0 <= fraction < 1", fraction);
  if (fraction == 0.0) return 0;
  TUTTI_CHECK(documents >= 2,
              "validation_fraction is {} and the data is one document; add text, or set validation_fraction = 0",
              fraction);
  return std::clamp<int64_t>(std::llround(fraction * static_cast<double>(documents)), 1, documents - 1);
}

// The documents with the smallest random words, in the order of the words.
std::vector<int64_t> held_out_documents(int64_t documents, const TokenDatasetOptions& options) {
  const int64_t count = held_out_count(documents, options.validation_fraction);
  std::vector<std::pair<uint64_t, int64_t>> drawn(static_cast<size_t>(documents));
  for (int64_t i = 0; i < documents; ++i) {
    drawn[static_cast<size_t>(i)] = {random_word("held-out documents", options.seed, i, 0), i};
  }
  std::partial_sort(drawn.begin(), drawn.begin() + count, drawn.end());
  std::vector<int64_t> held_out;
  for (int64_t i = 0; i < count; ++i) held_out.push_back(drawn[static_cast<size_t>(i)].second);
  return held_out;
}

std::vector<int64_t> all_but(int64_t documents, std::span<const int64_t> held_out) {
  std::vector<bool> is_held_out(static_cast<size_t>(documents));
  for (const int64_t document : held_out) is_held_out[static_cast<size_t>(document)] = true;
  std::vector<int64_t> rest;
  for (int64_t i = 0; i < documents; ++i) {
    if (!is_held_out[static_cast<size_t>(i)]) rest.push_back(i);
  }
  return rest;
}

// Fisher and Yates's shuffle from the back; the swap at place i takes random word i of the epoch. The bias of mapping
// 64 bits to i + 1 places is below (i + 1) / 2^64.
void shuffle(std::vector<int64_t>& documents, uint64_t seed, int64_t epoch) {
  for (int64_t i = static_cast<int64_t>(documents.size()) - 1; i > 0; --i) {
    const auto product = static_cast<unsigned __int128>(random_word("document order", seed, i, epoch)) *
                         static_cast<unsigned __int128>(i + 1);
    std::swap(documents[static_cast<size_t>(i)], documents[static_cast<size_t>(product >> 64)]);
  }
}

TokenRows empty_rows(int64_t count, int64_t sequence_length) {
  TUTTI_CHECK(count >= 0, "{} rows were asked for", count);
  const size_t tokens = static_cast<size_t>(count * sequence_length);
  return {count, sequence_length, std::vector<int32_t>(tokens), std::vector<int32_t>(tokens),
          std::vector<int32_t>(tokens)};
}

void read_into(TokenRows& rows, int64_t slot, const TokenStream& stream, int64_t row) {
  const size_t length = static_cast<size_t>(rows.sequence_length);
  const size_t begin = static_cast<size_t>(slot) * length;
  stream.read_row(row, std::span(rows.inputs).subspan(begin, length), std::span(rows.labels).subspan(begin, length),
                  std::span(rows.positions).subspan(begin, length));
}

}  // namespace

TokenDataset::TokenDataset(TokenCorpus corpus, const Tokenizer& tokenizer, const TokenDatasetOptions& options)
    : corpus_(std::move(corpus)),
      options_(options),
      frame_(document_frame(tokenizer)),
      validation_(corpus_, held_out_documents(corpus_.document_count(), options), frame_, options.sequence_length) {
  training_documents_ = all_but(corpus_.document_count(), validation_.documents());
  rows_per_epoch_ = epoch(0).row_count();
  TUTTI_CHECK(rows_per_epoch_ >= 1,
              "the training text has {} tokens, not enough for one row; add text or set sequence_length below {}",
              epoch(0).pair_count(), options.sequence_length);
  TUTTI_CHECK(
      options.validation_fraction == 0.0 || validation_.row_count() >= 1,
      "the held-out text has {} tokens, not enough for one row of sequence_length {}; raise validation_fraction "
      "(now {}), add text or shorten rows",
      validation_.pair_count(), options.sequence_length, options.validation_fraction);
}

DataCursor TokenDataset::cursor_at(int64_t global_row) const {
  TUTTI_CHECK(global_row >= 0, "global row is {}, expected at least 0", global_row);
  return {global_row / rows_per_epoch_, global_row % rows_per_epoch_};
}

int64_t TokenDataset::global_row_at(DataCursor cursor) const {
  TUTTI_CHECK(cursor.epoch >= 0 && cursor.row >= 0 && cursor.row < rows_per_epoch_,
              "data cursor is epoch {}, row {}; an epoch has {} rows. Was the data changed?", cursor.epoch, cursor.row,
              rows_per_epoch_);
  return cursor.epoch * rows_per_epoch_ + cursor.row;
}

const TokenStream& TokenDataset::epoch(int64_t index) {
  if (index != epoch_index_) {
    std::vector<int64_t> order = training_documents_;
    shuffle(order, options_.seed, index);
    epoch_ = std::make_unique<TokenStream>(corpus_, std::move(order), frame_, options_.sequence_length);
    epoch_index_ = index;
  }
  return *epoch_;
}

TokenRows TokenDataset::training_rows(int64_t first_row, int64_t count) {
  TokenRows rows = empty_rows(count, options_.sequence_length);
  for (int64_t i = 0; i < count; ++i) {
    const DataCursor cursor = cursor_at(first_row + i);
    read_into(rows, i, epoch(cursor.epoch), cursor.row);
  }
  return rows;
}

TokenRows TokenDataset::validation_rows(int64_t first_row, int64_t count) const {
  TokenRows rows = empty_rows(count, options_.sequence_length);
  for (int64_t i = 0; i < count; ++i) read_into(rows, i, validation_, first_row + i);
  return rows;
}

std::span<const int64_t> TokenDataset::validation_documents_in(int64_t rows) const {
  return validation_documents().first(static_cast<size_t>(validation_.documents_in_rows(rows)));
}

}  // namespace tutti
