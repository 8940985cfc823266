// Settings of sampling against transformers' processors and llama.cpp's formulas (write_sampling_cases.py), and draws.
#include "tutti/generate/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>

#include "tests/support/message_of.h"

namespace tutti::generate {
namespace {

template <class T>
std::vector<T> numbers_of(std::istream& file) {
  std::string line, word;
  std::getline(file, line);
  std::istringstream words(line);
  std::vector<T> numbers;
  while (words >> word) numbers.push_back(static_cast<T>(std::stod(word)));  // also hex floats
  return numbers;
}

std::vector<int32_t> first_ids(size_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

TEST(Sampling, LeavesTheTokensAndProbabilitiesOfOtherLibraries) {
  std::ifstream file(TUTTI_SOURCE_DIR "/tests/generate/sampling_cases.txt");
  int cases = 0;
  for (std::string head; std::getline(file, head); ++cases) {
    std::istringstream words(head);
    std::string order;
    SamplingOptions o;
    words >> order >> o.temperature >> o.top_k >> o.top_p >> o.min_p >> o.repetition_penalty >> o.presence_penalty >>
        o.frequency_penalty;
    o.order = order == "llama_cpp" ? SamplingOrder::llama_cpp : SamplingOrder::transformers;
    const std::vector<float> logits = numbers_of<float>(file);
    const std::vector<int32_t> tokens = numbers_of<int32_t>(file);
    const std::vector<double> expected = numbers_of<double>(file);
    ASSERT_EQ(expected.size(), logits.size()) << head;
    std::vector<double> got(logits.size());
    for (const auto& [id, probability] :
         distribution_of(logits, first_ids(logits.size()), o, {tokens, std::ssize(tokens), {}}))
      got[static_cast<size_t>(id)] = probability;
    for (size_t id = 0; id < got.size(); ++id) {
      EXPECT_EQ(got[id] > 0, expected[id] > 0) << head << ", case " << cases << ", token " << id;
      EXPECT_NEAR(got[id], expected[id], 1e-6) << head << ", case " << cases << ", token " << id;
    }
  }
  EXPECT_EQ(cases, 240);
}

TEST(Sampling, DrawsAsOftenAsTheProbabilitiesSayAndEachTimeTheSame) {
  const std::vector<float> logits{0.3f, 2, -1, 1.2f, 0.9f};
  const std::vector<int32_t> ids{0, 1, 3, 4};  // token 2 does not exist
  SamplingOptions o{.temperature = 0.8, .top_p = 0.95};
  std::vector<int> counts(5);
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    o.seed = static_cast<uint64_t>(i);
    const int32_t id = draw_token(logits, ids, o, {});
    EXPECT_EQ(draw_token(logits, ids, o, {}), id);
    ++counts[static_cast<size_t>(id)];
  }
  for (const auto& [id, probability] : distribution_of(logits, ids, o, {}))
    EXPECT_NEAR(counts[static_cast<size_t>(id)], probability * kDraws, 5 * std::sqrt(kDraws * probability)) << id;
  EXPECT_EQ(counts[2], 0);
}

TEST(Sampling, TheNumberOfTokensIsThePlaceInTheStream) {
  const std::vector<float> logits(50, 0.0f);
  const std::vector<int32_t> ids = first_ids(50);
  const std::vector<int32_t> tokens(40, 3), others(40, 9);
  std::vector<int32_t> drawn;
  for (size_t count = 1; count <= 40; ++count) {
    const SamplingState state{std::span(tokens).first(count), 1, {}};
    drawn.push_back(draw_token(logits, ids, {}, state));
    EXPECT_EQ(drawn.back(), draw_token(logits, ids, {}, {std::span(others).first(count), 1, {}}));
  }
  std::sort(drawn.begin(), drawn.end());
  EXPECT_GT(std::unique(drawn.begin(), drawn.end()) - drawn.begin(), 20);
}

TEST(Sampling, TiesGoToTheLowestId) {
  const std::vector<float> logits{1, 5, 5, 2, 5};
  const std::vector<int32_t> ids = first_ids(5);
  EXPECT_EQ(draw_token(logits, ids, {.temperature = 0}, {}), 1);
  const auto two = distribution_of(logits, ids, {.top_k = 2}, {});
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].id, 1);
  EXPECT_EQ(two[1].id, 2);
}

// presence and frequency look at what was generated, the repetition penalty also at the prompt.
TEST(Sampling, PenaltiesLookAtTheTokensOfTheirOrder) {
  const std::vector<float> logits{4, 3, 2, 1};
  const std::vector<int32_t> ids = first_ids(4), tokens{0, 1, 1, 2};
  const SamplingState state{tokens, 2, {}};  // 0 and 1 are the prompt
  const auto ratio = [&](const SamplingOptions& o, int32_t a, int32_t b) {
    double x = 0, y = 0;
    for (const auto& [id, probability] : distribution_of(logits, ids, o, state)) {
      if (id == a) x = probability;
      if (id == b) y = probability;
    }
    return std::log(x / y);
  };
  EXPECT_NEAR(ratio({.presence_penalty = 0.5}, 0, 1), 1.5, 1e-6);
  EXPECT_NEAR(ratio({.frequency_penalty = 0.5}, 1, 3), 1.5, 1e-6);
  EXPECT_NEAR(ratio({.presence_penalty = 0.5, .order = SamplingOrder::llama_cpp}, 0, 1), 1, 1e-6);
  EXPECT_NEAR(ratio({.frequency_penalty = 0.5, .order = SamplingOrder::llama_cpp}, 0, 1), 1.5, 1e-6);
  EXPECT_NEAR(ratio({.repetition_penalty = 2}, 0, 3), 1, 1e-6);
  EXPECT_NEAR(ratio({.logit_bias = {{3, 2.5}}}, 3, 0), -0.5, 1e-6);
}

TEST(Sampling, SettingsThatMeanNothingAreNamed) {
  const auto message = [](const SamplingOptions& o) { return message_of([&] { validate(o, 10); }); };
  EXPECT_EQ(message({}), "no error");
  EXPECT_EQ(message({.temperature = -1}), "temperature is -1; expected 0 or more");
  EXPECT_EQ(message({.temperature = NAN}), "temperature is nan; expected 0 or more");
  EXPECT_EQ(message({.top_k = -3}), "top_k is -3; expected 0 (all tokens) or more");
  EXPECT_EQ(message({.top_p = -0.1}), "top_p is -0.1; expected 0 to 1");
  EXPECT_EQ(message({.min_p = 2}), "min_p is 2; expected 0 to 1");
  EXPECT_EQ(message({.repetition_penalty = 0}), "repetition_penalty is 0; expected a positive number (1: none)");
  EXPECT_EQ(message({.presence_penalty = INFINITY}), "presence_penalty is inf; expected a number");
  EXPECT_EQ(message({.frequency_penalty = NAN}), "frequency_penalty is nan; expected a number");
  EXPECT_EQ(message({.logit_bias = {{10, 1.0}}}), "logit_bias names token 10; the model has 10");
  const std::vector<float> logits{1, NAN};
  EXPECT_NE(message_of([&] { draw_token(logits, first_ids(2), {}, {}); }).find("the logit of token 1 is NaN"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::generate
