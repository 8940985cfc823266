// all-MiniLM-L6-v2 against transformers (tests/weights/expected/README.md).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/weights/support/published_models.h"
#include "tutti/io/safetensors.h"
#include "tutti/train/sentence_model.h"

namespace tutti::train {
namespace {

constexpr const char* kModel = "all-minilm-l6-v2";
const std::string kFile = tutti::testing::published_file(kModel, "model.safetensors");

TEST(MiniLm, HasTheIdsAndEmbeddingsOfAHundredSentences) {
  TUTTI_NEEDS_PUBLISHED(kFile, kModel);
  const SentenceModel model(std::filesystem::path(kFile).parent_path());
  const std::string folder = TUTTI_SOURCE_DIR "/tests/weights/expected/";
  const SafetensorsFile expected(folder + "minilm.safetensors");
  std::ifstream sentences(folder + "sentences.txt");
  const Tensor lengths = expected.tensor("lengths"), tokens = expected.tensor("tokens"),
               embeddings = expected.tensor("embeddings");
  int64_t at = 0, row = 0;
  for (std::string line; std::getline(sentences, line); ++row) {
    const int64_t length = lengths.data<int32_t>()[row], dim = embeddings.extent(1);
    const std::vector<int32_t> ids(tokens.data<int32_t>() + at, tokens.data<int32_t>() + at + length);
    EXPECT_EQ(model.encode(line), ids) << line;
    const std::vector<float> embedding = model.embed(line);
    ASSERT_EQ(std::ssize(embedding), dim);
    for (int64_t i = 0; i < dim; ++i)
      ASSERT_NEAR(embedding[static_cast<size_t>(i)], embeddings.data<float>()[row * dim + i], 1e-5) << line;
    at += length;
  }
  EXPECT_EQ(row, 100);
}

TEST(MiniLm, RefusesIdsThatItDoesNotHave) {
  TUTTI_NEEDS_PUBLISHED(kFile, kModel);
  const SentenceModel model(std::filesystem::path(kFile).parent_path());
  for (const std::vector<int32_t>& ids : {std::vector<int32_t>{}, {-1}, {30522}, std::vector<int32_t>(513, 5)})
    EXPECT_THROW(model.embed(ids), UsageError);
}

}  // namespace
}  // namespace tutti::train
