#include "tutti/deploy/word_formulas.h"

#include <gtest/gtest.h>

#include "tutti/deploy/package_error.h"

namespace tutti::deploy {
namespace {

// Points of two sizes, a from 1 to 5 and b from 2 to 10 in steps of 2, and a list of numbers for each.
struct Case {
  std::vector<Words> sizes, words;
  template <class Fn>
  explicit Case(Fn list) {
    for (int64_t a = 1; a <= 5; ++a) {
      for (int64_t b = 2; b <= 10; b += 2) sizes.push_back({a, b}), words.push_back(list(a, b));
    }
  }
  WordFormulas::Counts expect_all(const std::string& bytes) const {
    const WordFormulas formulas(bytes, sizes.size(), 2);
    for (size_t p = 0; p < sizes.size(); ++p) EXPECT_EQ(formulas.at(p, sizes[p]), words[p]) << "point " << p;
    return formulas.counts();
  }
};

TEST(WordFormulas, NumbersAreConstantsPolynomialsOrTables) {
  const Case c([](int64_t a, int64_t b) {
    return Words{7, 3 * a - b + 2, a * b * 16, b * b / 2, a * (a + 1) / 2, (b + 63) / 64 + a % 3, -a, int64_t{1} << 62};
  });
  const WordFormulas::Counts counts = c.expect_all(encode_formulas(c.sizes, c.words));
  EXPECT_EQ(counts.constant, 2);
  EXPECT_EQ(counts.polynomial, 5);
  EXPECT_EQ(counts.table, 1);
}

TEST(WordFormulas, ListsOfSeveralLengths) {
  const Case c([](int64_t a, int64_t b) { return a == 1 ? Words{b} : Words{a, b, a * 4}; });
  c.expect_all(encode_formulas(c.sizes, c.words));
}

TEST(WordFormulas, OneCombinationAndOnesWithoutSizes) {
  const std::vector<Words> sizes{{}}, words{{1, -2, 3}};
  const WordFormulas formulas(encode_formulas(sizes, words), 1, 0);
  EXPECT_EQ(formulas.at(0, {}), words[0]);
}

TEST(WordFormulas, CutAndForgedBytesAreRefused) {
  const Case c([](int64_t a, int64_t b) { return Words{a, a * b, a ^ b}; });
  const std::string bytes = encode_formulas(c.sizes, c.words);
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_THROW(WordFormulas(bytes.substr(0, n), c.sizes.size(), 2), PackageError) << n;
  EXPECT_THROW(WordFormulas(bytes, c.sizes.size() + 1, 2), PackageError);
  EXPECT_THROW(WordFormulas(bytes, c.sizes.size(), 3), PackageError);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string other = bytes;
    other[i] = static_cast<char>(other[i] ^ 0x41);
    try {
      const WordFormulas formulas(other, c.sizes.size(), 2);
      for (size_t p = 0; p < c.sizes.size(); ++p) formulas.at(p, c.sizes[p]);
    } catch (const PackageError&) {
    }
  }
}

}  // namespace
}  // namespace tutti::deploy
