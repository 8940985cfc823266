// Gemma 3 270M against an independent float64 forward (tests/weights/expected/gemma3_numbers.py).
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/weights/support/published_models.h"
#include "tutti/train/ready_model.h"
#include "tutti/train/score_text.h"

namespace tutti::train {
namespace {

constexpr const char* kModel = "gemma-3-270m";
const std::string kFile = tutti::testing::published_file(kModel, "gemma-3-270m-q4_k_m.gguf");

TEST(Gemma3, HasTheLogProbabilitiesOfTheFormulas) {
  TUTTI_NEEDS_PUBLISHED(kFile, kModel);
  const ReadyModel ready = open_published(kFile, 1024);
  const EncodeOptions framed{.add_special_tokens = true};
  EXPECT_EQ(ready.tokenizer->encode("The capital of France is", framed),
            (std::vector<int32_t>{2, 818, 5279, 529, 7001, 563}))
      << "one BOS";
  std::ifstream file(TUTTI_SOURCE_DIR "/tests/weights/expected/text.txt");
  std::vector<int32_t> text = ready.tokenizer->encode(std::string(std::istreambuf_iterator(file), {}), framed);
  ASSERT_GE(text.size(), 901u);
  text.resize(901);
  double sum = 0;
  for (const float value : token_log_probabilities(*ready.model, text, 1024)) sum += value;
  EXPECT_NEAR(sum / -2736.1963577176043, 1, 1e-6) << sum;
}

}  // namespace
}  // namespace tutti::train
