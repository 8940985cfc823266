#include "tutti/ops/einsum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "tutti/core/error.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/permute.h"

namespace tutti {
namespace {

using facets::sample_tensor;

// The definition: a loop over all letters. Letters only; `result` names the dims of the output.
std::vector<double> by_definition(const std::vector<std::string>& subscripts, const std::string& result,
                                  const std::vector<Tensor>& operands) {
  std::map<char, int64_t> size, at;
  for (size_t k = 0; k < operands.size(); ++k) {
    for (size_t d = 0; d < subscripts[k].size(); ++d) size[subscripts[k][d]] = operands[k].extents()[d];
  }
  int64_t count = 1, outputs = 1;
  for (const auto& [letter, n] : size) count *= n;
  for (const char c : result) outputs *= size[c];
  std::vector<double> sums(static_cast<size_t>(outputs));
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, index = 0;
    for (const auto& [letter, n] : size) {
      at[letter] = rest % n;
      rest /= n;
    }
    double term = 1;
    for (size_t k = 0; k < operands.size(); ++k) {
      int64_t offset = 0;
      for (size_t d = 0; d < subscripts[k].size(); ++d) offset += at[subscripts[k][d]] * operands[k].strides()[d];
      term *= facets::read_double(operands[k], offset);
    }
    for (const char c : result) index = index * size[c] + at[c];
    sums[static_cast<size_t>(index)] += term;
  }
  return sums;
}

void expect_close(const Tensor& y, const std::vector<double>& expected, const std::string& what) {
  const std::vector<double> got = facets::values(y, y.extents());
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-12 * (1 + std::abs(expected[i]))) << what << " at " << i;
}

TEST(Einsum, IsTheSumOverAllLetters) {
  const std::map<char, int64_t> sizes = {{'a', 2}, {'b', 3}, {'c', 4}, {'d', 5}};
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {{{"ab", "bc"}, "ac"},
                                                                               {{"ab", "bc"}, "ca"},
                                                                               {{"abc", "acd"}, "abd"},
                                                                               {{"abc", "acd"}, "dba"},
                                                                               {{"ab", "ab"}, ""},
                                                                               {{"ab", "ab"}, "ab"},
                                                                               {{"a", "b"}, "ab"},
                                                                               {{"abc", "db"}, "cd"},
                                                                               {{"abc"}, "cab"},
                                                                               {{"abc"}, "b"},
                                                                               {{"abc"}, ""},
                                                                               {{"aa"}, "a"},
                                                                               {{"aa"}, ""},
                                                                               {{"aba"}, "ba"},
                                                                               {{"aab", "cb"}, "ac"},
                                                                               {{"ab", "bc", "cd"}, "ad"},
                                                                               {{"ab", "ac", "ad"}, "bcd"},
                                                                               {{"a", "a", "a"}, "a"},
                                                                               {{"bca", "dab", "cd", "a"}, "ac"}};
  for (const auto& [subscripts, result] : cases) {
    std::vector<Tensor> operands;
    std::string equation;
    for (const std::string& letters : subscripts) {
      Extents extents;
      for (const char c : letters) extents.push_back(sizes.at(c));
      operands.push_back(sample_tensor(operands.size() + 1, extents, DType::f64));
      equation += (equation.empty() ? "" : ", ") + letters;
    }
    equation += " -> " + result;
    expect_close(einsum(equation, operands), by_definition(subscripts, result, operands), equation);
  }
}

TEST(Einsum, WithoutAnArrowKeepsTheLettersThatOccurOnce) {
  const Tensor a = sample_tensor(1, {3, 2}, DType::f64), b = sample_tensor(2, {2, 4}, DType::f64);
  expect_close(einsum("zb,ba", a, b), by_definition({"zb", "ba"}, "az", {a, b}), "zb,ba");
  EXPECT_EQ(einsum("ba", a).extents(), (Extents{2, 3}));
  EXPECT_EQ(einsum("ii", sample_tensor(1, {3, 3})).ndim(), 0);
}

TEST(Einsum, FurtherDimsBroadcastFromTheRight) {
  const Tensor a = sample_tensor(1, {6, 1, 2, 3}, DType::f64), b = sample_tensor(2, {5, 3, 4}, DType::f64);
  const Tensor y = einsum("...ij,...jk->...ik", a, b);
  EXPECT_EQ(y.extents(), (Extents{6, 5, 2, 4}));
  expect_close(y, by_definition({"aij", "bjk"}, "abik", {einsum("abij->aij", a), b}), "broadcast");
  EXPECT_EQ(einsum("...ij,...jk", a, b).extents(), (Extents{6, 5, 2, 4}));
  EXPECT_EQ(einsum("i...->...i", sample_tensor(1, {2, 3, 4})).extents(), (Extents{3, 4, 2}));
}

TEST(Einsum, OfIntegersMovesAndSums) {
  const Tensor x = sample_tensor(1, {3, 3}, DType::i64, 0, 9);
  EXPECT_EQ(facets::values(einsum("ij->ji", x), {3, 3}), facets::values(transpose(x, 0, 1), {3, 3}));
  EXPECT_EQ(einsum("ii", x).dtype(), DType::i64);
}

TEST(Einsum, SaysWhatIsWrong) {
  const Tensor a = sample_tensor(1, {2, 3}), b = sample_tensor(2, {4, 5});
  const auto message = [&](const char* equation) -> std::string {
    try {
      einsum(equation, a, b);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(message("ij,jk->ik"), "einsum: letter 'j' of 'ij,jk->ik' has size 3 in one operand and 4 in another");
  EXPECT_EQ(message("ij,kl->im"), "einsum: letter 'm' of the result of 'ij,kl->im' is in no operand");
  EXPECT_EQ(message("ij,kl->ii"), "einsum: letter 'i' stands twice in the result of 'ij,kl->ii'");
  EXPECT_EQ(message("ijk,kl->i"), "einsum: 'ijk' names 3 dims, operand 0 is [2, 3]");
  EXPECT_EQ(message("ij"), "einsum: 'ij' has 1 operand, 2 are given");
  EXPECT_EQ(message("i1,kl->i"), "einsum: '1' in 'i1,kl->i' is neither a letter nor part of one '...'");
}

}  // namespace
}  // namespace tutti
