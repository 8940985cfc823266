// Sums that do not depend on the order of their terms (numerics contract, N7).
//
// Terms are added to one integer bin per exponent, so addition is exact and the bins of several ranks add as integers.
// The whole range of f32 and of its squares is covered; NaNs and infinities are counted. Only the last step rounds.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace tutti {

enum class ExactTerm : uint8_t { value, square };

class ExactSum {
 public:
  // The exchange format between ranks: the low and high part of each bin, then the counts of NaN, +infinity and
  // -infinity.
  static constexpr int kBins = 256;
  static constexpr int kWords = 2 * kBins + 3;

  explicit ExactSum(ExactTerm term) : term_(term) {}

  void add(std::span<const float> values);
  void add(const ExactSum& other);

  // The state as integers, to be summed over ranks elementwise and set with set_words().
  std::array<int64_t, kWords> words() const;
  void set_words(std::span<const int64_t, kWords> words);

  // The sum, rounded to double; NaN when a NaN or both infinities were added.
  double value() const;
  bool is_finite() const { return nan_ == 0 && positive_infinity_ == 0 && negative_infinity_ == 0; }

 private:
  ExactTerm term_;
  std::array<__int128, kBins> bins_{};  // bin e holds multiples of 2^(e - 150), or of 2^(2 (e - 150)) for squares
  int64_t nan_ = 0, positive_infinity_ = 0, negative_infinity_ = 0;
};

}  // namespace tutti
