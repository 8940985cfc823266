#include "tutti/io/byte_ngram.h"

#include <cmath>

namespace tutti {
namespace {

// Calls visit(a, b, x) for each symbol x of the document with the two symbols a, b before it.
template <class Visit>
void walk(std::string_view document, const Visit& visit) {
  size_t a = ByteNgram::kDocumentEnd;
  size_t b = ByteNgram::kDocumentEnd;
  for (size_t i = 0; i <= document.size(); ++i) {
    const size_t x = i < document.size() ? static_cast<unsigned char>(document[i]) : ByteNgram::kDocumentEnd;
    visit(a, b, x);
    a = b;
    b = x;
  }
}

}  // namespace

ByteNgram::ByteNgram()
    : trigrams_(kSymbols * kSymbols * kSymbols),
      bigrams_(kSymbols * kSymbols),
      unigrams_(kSymbols),
      pair_totals_(kSymbols * kSymbols),
      single_totals_(kSymbols) {}

void ByteNgram::add(std::string_view document) {
  walk(document, [this](size_t a, size_t b, size_t x) {
    const size_t context = a * kSymbols + b;
    ++trigrams_[context * kSymbols + x];
    ++pair_totals_[context];
    ++bigrams_[b * kSymbols + x];
    ++single_totals_[b];
    ++unigrams_[x];
    ++total_;
  });
}

double ByteNgram::probability(size_t before_last, size_t last, size_t next) const {
  const auto backed = [](double count, double total, double lower) {
    return (count + kBackoff * lower) / (total + kBackoff);
  };
  const size_t context = before_last * kSymbols + last;
  const double order0 = backed(unigrams_[next], static_cast<double>(total_), 1.0 / kSymbols);
  const double order1 = backed(bigrams_[last * kSymbols + next], single_totals_[last], order0);
  return backed(trigrams_[context * kSymbols + next], pair_totals_[context], order1);
}

double ByteNgram::bits(std::string_view document) const {
  double bits = 0;
  walk(document, [&](size_t a, size_t b, size_t x) { bits -= std::log2(probability(a, b, x)); });
  return bits;
}

}  // namespace tutti
