// An order-2 byte model: the baseline for a language model's bits per byte.
//
// It estimates P(next | two previous bytes) from counts over the training text. The end of a document is a 257th
// symbol, which is predicted like any byte and also precedes the first byte, so the model has the same task as a
// language model over framed documents. Smoothing: each order backs off to the next lower one,
//   p_k(x | h) = (count(h, x) + kBackoff p_{k-1}(x)) / (count(h) + kBackoff),   p_{-1} = 1 / 257,
// which is a Dirichlet prior with kBackoff = 1 pseudo-count distributed as the lower order.
// Source: MacKay, Peto, "A hierarchical Dirichlet language model" (1995), equation 14.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti {

// Reserves 68 MB of address space, of which only used pages take memory. Used by one thread at a time.
class ByteNgram {
 public:
  static constexpr double kBackoff = 1.0;
  static constexpr size_t kSymbols = 257;
  static constexpr size_t kDocumentEnd = 256;

  ByteNgram();
  // Adds one document to the counts.
  void add(std::string_view document);
  // P(next | before_last, last), each a byte or kDocumentEnd.
  double probability(size_t before_last, size_t last, size_t next) const;
  // The number of bits, by this model, of one document and its end.
  double bits(std::string_view document) const;

 private:
  std::vector<uint32_t> trigrams_, bigrams_, unigrams_;
  std::vector<uint32_t> pair_totals_, single_totals_;
  uint64_t total_ = 0;
};

}  // namespace tutti
