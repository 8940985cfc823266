// Models that are written in quantized types: what the files hold, and that they compute.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/models/support/family_cases.h"
#include "tests/models/support/first_weights.h"
#include "tests/support/quantized_model.h"
#include "tests/support/temporary_folder.h"
#include "tutti/autograd/tape.h"
#include "tutti/models/decoder.h"
#include "tutti/models/published_folder.h"
#include "tutti/models/published_gguf.h"
#include "tutti/models/weight_source.h"

namespace tutti::models {
namespace {

using tutti::testing::quantizable_decoder;
using tutti::testing::TemporaryFolder;

constexpr FileType kQuantized[] = {FileType::q4_0, FileType::q4_1,   FileType::q5_0,   FileType::q5_1,
                                   FileType::q8_0, FileType::q4_k_m, FileType::q5_k_m, FileType::q6_k};

// The largest root of a mean squared error, relative to the weights.
double most_error_of(BlockFormat format) {
  switch (format) {
    case BlockFormat::q4_0:
    case BlockFormat::q4_1:
    case BlockFormat::q4_k:
      return 0.11;
    case BlockFormat::q5_0:
    case BlockFormat::q5_1:
    case BlockFormat::q5_k:
      return 0.055;
    case BlockFormat::q6_k:
      return 0.03;
    case BlockFormat::q8_0:
      return 0.008;
    default:
      return 0.001;
  }
}

double relative_error(const Tensor& got, const Tensor& expected) {
  const Tensor a = to_contiguous(cast(got, DType::f64)), b = to_contiguous(cast(expected, DType::f64));
  double error = 0, size = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    error += std::pow(a.data<double>()[i] - b.data<double>()[i], 2);
    size += std::pow(b.data<double>()[i], 2);
  }
  return size == 0 ? std::sqrt(error) : std::sqrt(error / size);
}

// The values of each weight are near those of the source.
void expect_near(const PublishedModel& got, const PublishedModel& expected) {
  const WeightSource written(got), source(expected);
  ASSERT_EQ(written.weights().size(), source.weights().size());
  for (size_t i = 0; i < source.weights().size(); ++i) {
    const SourceWeight& weight = written.weights()[i];
    const double most = weight.blocks ? most_error_of(*weight.blocks) : 0.001;
    EXPECT_LT(relative_error(written.values(weight), source.values(source.weights()[i])), most) << weight.name;
  }
}

class QuantizedFamilies : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, QuantizedFamilies,
                         ::testing::Values("llama", "qwen2", "qwen3", "qwen3_moe", "mixtral", "gemma2", "gemma3",
                                           "gemma4"),
                         name_of_case);

TEST_P(QuantizedFamilies, HaveWeightsNearThoseOfTheSource) {
  const std::filesystem::path folder = families_folder() / GetParam();
  ASSERT_TRUE(std::filesystem::exists(folder / "config.json"));
  const PublishedModel model(folder);
  for (const FileType type : kQuantized) {
    const TemporaryFolder work;
    const WrittenModel written = write_published_gguf(model, work / "model.gguf", {.type = type});
    const ModelFile file(work / "model.gguf");
    EXPECT_EQ(file.metadata().at("general.file_type").whole(), static_cast<int64_t>(type));
    EXPECT_EQ(written.tensors, std::ssize(file.entries()));
    expect_near(PublishedModel(work / "model.gguf"), model);
  }
}

TEST(QuantizedConversion, WritesTheFormatsOfEachType) {
  const TemporaryFolder work;
  write_first_weights(quantizable_decoder(false, 8), DType::bf16, work / "model");
  const PublishedModel model(work / "model");
  int64_t before = 0;
  for (const FileType type : {FileType::q4_k_m, FileType::q5_k_m, FileType::q6_k, FileType::q8_0}) {
    const std::string path = work / std::string(row_of(type).name);
    const WrittenModel written = write_published_gguf(model, path, {.type = type});
    EXPECT_GT(written.nbytes, before);
    before = written.nbytes;
    EXPECT_EQ(written.notes.size(), 1);  // the vocabulary
    expect_near(PublishedModel(path), model);
    const ModelFile file(path);
    const auto type_of = [&](const std::string& name) { return std::string(file.entry(name).type_name()); };
    const std::string matrices(name_of(row_of(type).matrices));
    const bool is_mixed = type == FileType::q4_k_m || type == FileType::q5_k_m;
    EXPECT_EQ(type_of("output.weight"), type == FileType::q8_0 ? "Q8_0" : "Q6_K");
    EXPECT_EQ(type_of("token_embd.weight"), matrices);
    EXPECT_EQ(type_of("blk.0.attn_v.weight"), is_mixed ? "Q6_K" : matrices);
    EXPECT_EQ(type_of("blk.1.attn_v.weight"), matrices);
    EXPECT_EQ(type_of("blk.0.ffn_down.weight"), is_mixed ? "Q6_K" : matrices);
    EXPECT_EQ(type_of("blk.0.ffn_norm.weight"), "f32");
  }
  // What has the format already is copied.
  write_published_gguf(PublishedModel(work / "q4_k_m"), work / "again", {.type = FileType::q4_k_m});
  EXPECT_EQ(tutti::testing::read_whole_file(work / "again"), tutti::testing::read_whole_file(work / "q4_k_m"));
  // A folder holds what blocks decode to.
  write_published_folder(PublishedModel(work / "q4_k_m"), work / "decoded");
  expect_near(PublishedModel(work / "decoded"), PublishedModel(work / "q4_k_m"));
}

TEST(QuantizedConversion, ComputesWithTheBlocksThatItWrites) {
  const NoGradScope no_grad;
  const TemporaryFolder work;
  write_first_weights(quantizable_decoder(true, 4), DType::f32, work / "model");
  const PublishedModel model(work / "model");
  std::vector<int32_t> tokens, positions;
  for (int32_t i = 0; i < 33; ++i) tokens.push_back(i * 37 % 251), positions.push_back(i);
  const TokenBatch batch{Tensor::of(tokens), Tensor::of(positions), Tensor::of(std::vector<int32_t>(33, 0)), 1};
  const auto logits = [&](const PublishedModel& published, bool keeps_blocks) {
    Decoder decoder(published.config(), 512);
    published.load(decoder, {.freeze = true, .keep_blocks = keeps_blocks});
    return decoder.forward(batch);
  };
  const Tensor exact = logits(model, false);
  for (const FileType type : kQuantized) {
    const std::string path = work / std::string(row_of(type).name);
    write_published_gguf(model, path, {.type = type});
    const PublishedModel quantized(path);
    const Tensor decoded = logits(quantized, false);
    const double of_blocks = relative_error(logits(quantized, true), decoded);
    EXPECT_LT(of_blocks, 0.05) << path;
    EXPECT_GT(of_blocks, 1e-4) << path;
    EXPECT_LT(relative_error(decoded, exact), 3 * most_error_of(row_of(type).matrices)) << path;
  }
}

}  // namespace
}  // namespace tutti::models
