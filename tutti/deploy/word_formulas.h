// Lists of integers that depend on sizes, as formulas.
//
// A plan is written as a list of integers. For each combination of the declared sizes (a point) there is such a list;
// most numbers are the same in all of them, most others are polynomials of the sizes, such as strides and offsets.
// Lists of one length are kept as formulas of the sizes. A formula is kept only if it gives exactly the number of every
// point; numbers for which there is none are kept in a table with one entry per point.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::deploy {

using Words = std::vector<int64_t>;

// sizes[p], words[p]: of point p. All points have the same number of sizes.
std::string encode_formulas(std::span<const Words> sizes, std::span<const Words> words);

class WordFormulas {
 public:
  // PackageError when the bytes are no formulas for `points` points of `symbols` sizes.
  WordFormulas(std::string_view bytes, size_t points, size_t symbols);
  // The list of the point, whose sizes are given. PackageError when a number does not fit in 64 bits.
  Words at(size_t point, std::span<const int64_t> sizes) const;
  // How many numbers are the same for all sizes, polynomials of them, in tables.
  struct Counts {
    int64_t constant = 0, polynomial = 0, table = 0;
  };
  Counts counts() const;

 private:
  struct Formula {
    enum class Kind : uint8_t { constant, polynomial, table } kind;
    int64_t denominator = 1;
    Words numbers;  // the constant; a coefficient per monomial; a number per point of the variant
  };
  struct Variant {
    std::vector<Formula> formulas;
    std::vector<uint32_t> of_words;  // which formula gives a word
  };
  std::vector<Variant> variants_;
  std::vector<uint32_t> variant_of_, place_of_;  // per point
};

}  // namespace tutti::deploy
