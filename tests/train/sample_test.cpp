#include "tutti/train/sample.h"

#include <gtest/gtest.h>

#include "tests/train/support/tiny_model.h"

namespace tutti::train {
namespace {

std::string sampled(const TinyModel& tiny, const SampleOptions& options, const std::string& prompt = "number ") {
  return sample_text(tiny.model, ByteTokenizer(), prompt, options);
}

TEST(SampleText, BeginsWithThePrompt) {
  EXPECT_TRUE(sampled(TinyModel(), {.max_tokens = 5, .context = 16}).starts_with("number "));
}

TEST(SampleText, OfNoTokensIsThePrompt) {
  EXPECT_EQ(sampled(TinyModel(), {.max_tokens = 0, .context = 16}), "number ");
}

TEST(SampleText, WritesAtMostSoManyTokens) {
  EXPECT_LE(sampled(TinyModel(), {.max_tokens = 12, .context = 16}).size(), 7u + 12u);
}

TEST(SampleText, IsAFunctionOfModelPromptAndSeed) {
  const TinyModel tiny;
  const SampleOptions options{.max_tokens = 12, .seed = 4, .context = 16};
  EXPECT_EQ(sampled(tiny, options), sampled(tiny, options));
  SampleOptions other = options;
  other.seed = 5;
  EXPECT_NE(sampled(tiny, options), sampled(tiny, other));
}

TEST(SampleText, WithoutTemperatureTakesTheLikeliestTokenWhateverTheSeed) {
  const TinyModel tiny;
  EXPECT_EQ(sampled(tiny, {.max_tokens = 8, .temperature = 0, .seed = 1, .context = 16}),
            sampled(tiny, {.max_tokens = 8, .temperature = 0, .seed = 2, .context = 16}));
  EXPECT_EQ(sampled(tiny, {.max_tokens = 8, .temperature = 0, .context = 16}),
            sampled(tiny, {.max_tokens = 8, .temperature = 1, .top_k = 1, .context = 16}));
}

TEST(SampleText, GoesOnBeyondTheContext) {
  const SampleOptions options{.max_tokens = 30, .temperature = 0, .context = 8};
  const TinyModel tiny;
  EXPECT_EQ(sampled(tiny, options, "a long prompt, longer than the context"),
            sampled(tiny, options, "a long prompt, longer than the context"));
}

}  // namespace
}  // namespace tutti::train
