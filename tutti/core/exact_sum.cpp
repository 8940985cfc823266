#include "tutti/core/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tutti {
namespace {

// A square has 48 bits: this many of them fit in a signed 64-bit bin, also when the tables are added up.
constexpr size_t kBlock = size_t{1} << 15;
// Neighbouring terms go to different tables, so that adds to one bin do not wait for each other.
constexpr size_t kTables = 8;
// Terms are computed with vector instructions, this many at a time, before they are added to their bins one by one.
constexpr size_t kChunk = 256;
static_assert(kBlock % kChunk == 0 && kChunk % kTables == 0);
constexpr int kLowBits = 40;  // low part of a bin on the wire: leaves room for 2^23 ranks

using Tables = std::array<std::array<int64_t, ExactSum::kBins>, kTables>;

struct Chunk {
  alignas(64) std::array<uint32_t, kChunk> exponents;
  alignas(64) std::array<int64_t, kChunk> terms;
};

// Fills the first values.size() places; returns the largest exponent. Has no branches, so that compilers make vectors
// of it.
template <ExactTerm term>
uint32_t split(std::span<const float> values, Chunk& chunk) {
  uint32_t largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
    const uint32_t field = bits >> 23 & 255;
    const uint32_t mantissa = (bits & 0x7fffffu) | (field ? 0x800000u : 0u);
    const uint32_t exponent = std::max(field, 1u);  // denormals share the scale of exponent 1
    largest = std::max(largest, exponent);
    chunk.exponents[i] = exponent;
    if constexpr (term == ExactTerm::square) {
      chunk.terms[i] = static_cast<int64_t>(uint64_t{mantissa} * mantissa);
    } else {
      const int32_t sign = static_cast<int32_t>(bits) >> 31;  // 0 or -1
      chunk.terms[i] = (static_cast<int32_t>(mantissa) ^ sign) - sign;
    }
  }
  return largest;
}

// Adds the terms of at most kBlock values to tables of zeros; returns the largest exponent.
template <ExactTerm term>
uint32_t add_block(std::span<const float> values, Tables& tables) {
  Chunk chunk;
  uint32_t largest = 0;
  for (; values.size() >= kChunk; values = values.subspan(kChunk)) {
    largest = std::max(largest, split<term>(values.first<kChunk>(), chunk));
    for (size_t i = 0; i < kChunk; i += kTables) {
      for (size_t t = 0; t < kTables; ++t) tables[t][chunk.exponents[i + t]] += chunk.terms[i + t];
    }
  }
  largest = std::max(largest, split<term>(values, chunk));
  for (size_t i = 0; i < values.size(); ++i) tables[i % kTables][chunk.exponents[i]] += chunk.terms[i];
  return largest;
}

}  // namespace

void ExactSum::add(std::span<const float> values) {
  Tables tables;
  for (; !values.empty(); values = values.subspan(std::min(kBlock, values.size()))) {
    const std::span<const float> block = values.first(std::min(kBlock, values.size()));
    for (auto& table : tables) table.fill(0);
    const uint32_t largest = term_ == ExactTerm::square ? add_block<ExactTerm::square>(block, tables)
                                                        : add_block<ExactTerm::value>(block, tables);
    if (largest == 255) {
      for (const float v : block) {
        if (std::isnan(v)) ++nan_;
        else if (std::isinf(v)) ++(v > 0 || term_ == ExactTerm::square ? positive_infinity_ : negative_infinity_);
      }
    }
    for (size_t t = 1; t < kTables; ++t) {
      for (size_t e = 0; e < kBins; ++e) tables[0][e] += tables[t][e];
    }
    for (size_t e = 1; e < 255; ++e) bins_[e] += tables[0][e];
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
