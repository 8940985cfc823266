#include "tutti/core/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tutti {
namespace {

// A square has 48 bits: this many of them fit in a signed 64-bit bin.
constexpr size_t kBlock = size_t{1} << 14;
// Neighbouring terms go to different tables, so that adds to one bin do not wait for each other.
constexpr size_t kTables = 4;
constexpr int kLowBits = 40;  // low part of a bin on the wire: leaves room for 2^23 ranks

int64_t term_of(uint32_t bits, ExactTerm term) {
  const int64_t mantissa = (bits & 0x7fffffu) | ((bits >> 23 & 255) ? 0x800000u : 0u);
  if (term == ExactTerm::square) return mantissa * mantissa;
  return bits >> 31 ? -mantissa : mantissa;
}

}  // namespace

void ExactSum::add(std::span<const float> values) {
  std::array<std::array<int64_t, kBins>, kTables> tables;
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, values.size());
    for (auto& table : tables) table.fill(0);
    bool special = false;
    for (size_t i = begin; i < end; ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
      // Denormals share the scale of exponent 1.
      const uint32_t exponent = std::max(bits >> 23 & 255, 1u);
      special |= exponent == 255;
      tables[i % kTables][exponent] += term_of(bits, term_);
    }
    if (special) {
      for (size_t i = begin; i < end; ++i) {
        if (std::isnan(values[i])) ++nan_;
        else if (std::isinf(values[i])) ++(values[i] > 0 || term_ == ExactTerm::square ? positive_infinity_ : negative_infinity_);
      }
    }
    for (const auto& table : tables) {
      for (size_t e = 1; e < 255; ++e) bins_[e] += table[e];
    }
  }
}

void ExactSum::add(const ExactSum& other) {
  for (size_t e = 0; e < bins_.size(); ++e) bins_[e] += other.bins_[e];
  nan_ += other.nan_;
  positive_infinity_ += other.positive_infinity_;
  negative_infinity_ += other.negative_infinity_;
}

std::array<int64_t, ExactSum::kWords> ExactSum::words() const {
  std::array<int64_t, kWords> words{};
  for (size_t e = 0; e < kBins; ++e) {
    words[2 * e] = static_cast<int64_t>(bins_[e] & ((__int128{1} << kLowBits) - 1));
    words[2 * e + 1] = static_cast<int64_t>(bins_[e] >> kLowBits);
  }
  words[2 * kBins] = nan_;
  words[2 * kBins + 1] = positive_infinity_;
  words[2 * kBins + 2] = negative_infinity_;
  return words;
}

void ExactSum::set_words(std::span<const int64_t, kWords> words) {
  for (size_t e = 0; e < kBins; ++e) bins_[e] = (static_cast<__int128>(words[2 * e + 1]) << kLowBits) + words[2 * e];
  nan_ = words[2 * kBins];
  positive_infinity_ = words[2 * kBins + 1];
  negative_infinity_ = words[2 * kBins + 2];
}

double ExactSum::value() const {
  if (nan_ > 0 || (positive_infinity_ > 0 && negative_infinity_ > 0)) return std::numeric_limits<double>::quiet_NaN();
  if (positive_infinity_ > 0) return std::numeric_limits<double>::infinity();
  if (negative_infinity_ > 0) return -std::numeric_limits<double>::infinity();
  // Small bins first; a function of the bins alone, so equal on every layout.
  double sum = 0;
  for (int e = 1; e < 255; ++e) {
    const int scale = (e - 150) * (term_ == ExactTerm::square ? 2 : 1);
    sum += std::ldexp(static_cast<double>(bins_[static_cast<size_t>(e)]), scale);
  }
  return sum;
}

}  // namespace tutti
