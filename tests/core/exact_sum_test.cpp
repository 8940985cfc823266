#include "tutti/core/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tutti {
namespace {

std::vector<float> random_values(size_t n, float scale) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(n);
  for (float& v : values) v = normal(generator);
  return values;
}

TEST(ExactSum, DoesNotDependOnOrder) {
  std::vector<float> values = random_values(100'001, 1e-4f);
  ExactSum forward(ExactTerm::square), backward(ExactTerm::square);
  forward.add(values);
  std::reverse(values.begin(), values.end());
  backward.add(values);
  EXPECT_EQ(forward.words(), backward.words());
  EXPECT_EQ(forward.value(), backward.value());
}

TEST(ExactSum, MatchesALongDoubleSum) {
  for (const float scale : {1e-30f, 1e-4f, 1.0f, 1e30f}) {
    const std::vector<float> values = random_values(10'000, scale);
    long double squares = 0, sum = 0;
    for (const float v : values) squares += static_cast<long double>(v) * v, sum += v;
    ExactSum a(ExactTerm::square), b(ExactTerm::value);
    a.add(values);
    b.add(values);
    EXPECT_NEAR(a.value() / static_cast<double>(squares), 1.0, 1e-14);
    EXPECT_NEAR(b.value(), static_cast<double>(sum), 1e-12 * std::abs(static_cast<double>(scale)));
  }
}

TEST(ExactSum, AddsBinsOfRanksAsIntegers) {
  const std::vector<float> values = random_values(5'000, 3.0f);
  ExactSum whole(ExactTerm::value), first(ExactTerm::value), second(ExactTerm::value), joined(ExactTerm::value);
  whole.add(values);
  first.add(std::span(values).first(1'234));
  second.add(std::span(values).subspan(1'234));
  auto words = first.words();
  const auto other = second.words();
  for (size_t i = 0; i < words.size(); ++i) words[i] += other[i];
  joined.set_words(words);
  EXPECT_EQ(whole.words(), joined.words());
}

TEST(ExactSum, KeepsDenormals) {
  ExactSum sum(ExactTerm::value);
  sum.add(std::vector<float>(3, std::numeric_limits<float>::denorm_min()));
  EXPECT_EQ(sum.value(), 3.0 * std::numeric_limits<float>::denorm_min());
}

TEST(ExactSum, CountsNanAndInfinities) {
  const float inf = std::numeric_limits<float>::infinity();
  ExactSum square(ExactTerm::square), both(ExactTerm::value), nan(ExactTerm::value);
  square.add(std::vector<float>{1.0f, -inf});
  both.add(std::vector<float>{inf, 0.0f, 0.0f, 0.0f, -inf});
  nan.add(std::vector<float>{std::nanf(""), 2.0f});
  EXPECT_EQ(square.value(), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(both.value()));
  EXPECT_TRUE(std::isnan(nan.value()));
  EXPECT_FALSE(square.is_finite());
}

// One 128-bit bin per exponent, one term after the other, in the exchange format.
std::array<int64_t, ExactSum::kWords> plain_words(std::span<const float> values, ExactTerm term) {
  std::array<__int128, ExactSum::kBins> bins{};
  std::array<int64_t, ExactSum::kWords> words{};
  for (const float v : values) {
    const uint32_t bits = std::bit_cast<uint32_t>(v);
    const bool negative = (bits >> 31) != 0;
    const uint32_t field = bits >> 23 & 255, fraction = bits & 0x7fffffu;
    if (field == 255) {
      ++words[2 * ExactSum::kBins + (fraction != 0 ? 0u : negative && term == ExactTerm::value ? 2u : 1u)];
      continue;
    }
    const __int128 mantissa = field == 0 ? fraction : fraction + 0x800000u;
    bins[field == 0 ? 1 : field] += term == ExactTerm::square ? mantissa * mantissa : negative ? -mantissa : mantissa;
  }
  for (size_t e = 0; e < bins.size(); ++e) {
    words[2 * e] = static_cast<int64_t>(bins[e] & ((__int128{1} << 40) - 1));
    words[2 * e + 1] = static_cast<int64_t>(bins[e] >> 40);
  }
  return words;
}

void expect_plain_words(std::span<const float> values) {
  for (const ExactTerm term : {ExactTerm::value, ExactTerm::square}) {
    ExactSum sum(term);
    sum.add(values);
    EXPECT_EQ(sum.words(), plain_words(values, term))
        << values.size() << " values, squares: " << (term == ExactTerm::square);
  }
}

TEST(ExactSum, BinsEqualThoseOfAPlainLoop) {
  std::mt19937 generator(11);
  std::vector<float> any(70'001);  // each bit pattern: all exponents, denormals, infinities, NaNs
  for (float& v : any) v = std::bit_cast<float>(static_cast<uint32_t>(generator()));
  for (uint32_t e = 0; e < 256; ++e) {
    for (const uint32_t fraction : {0u, 1u, 0x7fffffu})
      any.push_back(std::bit_cast<float>(e << 23 | fraction)), any.push_back(-any.back());
  }
  const std::vector<float> normal = random_values(70'001, 1e-3f), zeros(1'000, 0.0f);
  for (const std::span<const float> all :
       {std::span<const float>(any), std::span<const float>(normal), std::span<const float>(zeros)}) {
    for (size_t begin = 0; begin < 5; ++begin) {
      for (size_t n = 0; n <= 70; ++n) expect_plain_words(all.subspan(begin, n));
      for (const size_t n : {255, 256, 257, 511, 769}) expect_plain_words(all.subspan(begin, n));
    }
    expect_plain_words(all);
    expect_plain_words(all.subspan(3, all.size() - 4));
  }
  for (const size_t n : {32'767, 32'768, 32'769, 65'537}) expect_plain_words(std::span(any).last(n));
}

// Specials hide in each place of a chunk and cancel in a bin of their own.
TEST(ExactSum, FindsASpecialInEachPlace) {
  for (const float special :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), std::nanf("")}) {
    std::vector<float> values(521, 0.5f);
    for (size_t place = 0; place < values.size(); ++place) {
      values[place] = special;
      expect_plain_words(values);
      values[place] = 0.5f;
    }
  }
}

// As many of the largest mantissas as a block takes, and more: a 64-bit bin must not overflow.
TEST(ExactSum, BinsHoldTheLargestMantissas) {
  for (const uint32_t exponent : {1u, 127u, 254u}) {
    const float largest = std::bit_cast<float>(exponent << 23 | 0x7fffffu);
    for (const float v : {largest, -largest}) expect_plain_words(std::vector<float>(140'003, v));
  }
}

}  // namespace
}  // namespace tutti
