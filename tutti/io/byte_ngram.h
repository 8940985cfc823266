// The order-2 byte model: the yardstick beside a language model's bits per byte.
//
// P(next | two bytes before), counted over training text. A document end is a 257th symbol, predicted like any byte and
// standing before the first byte as well, so the model has the same task as a language model over framed documents.
// Smoothing: each order is backed by the next lower one,
//   p_k(x | h) = (count(h, x) + kBackoff p_{k-1}(x)) / (count(h) + kBackoff),   p_{-1} = 1 / 257,
// a Dirichlet prior with kBackoff = 1 pseudo-count shaped as the lower order.
// Source: MacKay, Peto, "A hierarchical Dirichlet language model" (1995), equation 14.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti {

// Takes 68 MB of address space, of which pages in use only count. One thread at a time.
class ByteNgram {
 public:
  static constexpr double kBackoff = 1.0;
  static constexpr size_t kSymbols = 257;
  static constexpr size_t kDocumentEnd = 256;

  ByteNgram();
  // Counts one document.
  void add(std::string_view document);
  // P(next | before_last, last), each a byte or kDocumentEnd.
  double probability(size_t before_last, size_t last, size_t next) const;
  // Bits that the model needs for one document and its end.
  double bits(std::string_view document) const;

 private:
  std::vector<uint32_t> trigrams_, bigrams_, unigrams_;
  std::vector<uint32_t> pair_totals_, single_totals_;
  uint64_t total_ = 0;
};

}  // namespace tutti
