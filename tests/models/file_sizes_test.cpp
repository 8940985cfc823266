// What a model takes in files, computed from its description, is what files of it take.
#include "tutti/models/file_sizes.h"

#include <gtest/gtest.h>

#include "tests/models/support/first_weights.h"
#include "tests/support/temporary_folder.h"
#include "tutti/models/family.h"
#include "tutti/models/published_gguf.h"

namespace tutti::models {
namespace {

constexpr FileType kTypes[] = {FileType::q4_0, FileType::q4_k_m, FileType::q5_k_m,
                               FileType::q6_k, FileType::q8_0,   FileType::bf16};

TEST(FileSizes, AreThoseOfWrittenFiles) {
  for (const auto& [family, flavor] : {std::pair{"gemma4", "tiny_moe"}, {"gemma4", "tiny"}, {"qwen3", "tiny"}}) {
    const tutti::testing::TemporaryFolder work;
    const DecoderConfig config = flavor_named(family, flavor);
    write_first_weights(config, DType::bf16, work / "source");
    const FileSizes sizes = file_sizes(config, {std::begin(kTypes), std::end(kTypes)});
    for (size_t t = 0; t < std::size(kTypes); ++t) {
      const WrittenModel written =
          write_published_gguf(PublishedModel(work / "source"), work / fmt::format("{}.gguf", t), {.type = kTypes[t]});
      int64_t nbytes = 0, tensors = 0;
      for (const WeightKind& kind : sizes.kinds) nbytes += kind.nbytes[t], tensors += kind.tensors;
      // Beside the weights, files of Gemma 4 hold the divisors of its angles.
      const int64_t divisors = written.tensors - tensors;
      EXPECT_LE(divisors, 1) << family;
      EXPECT_EQ(written.nbytes - (divisors == 1 ? config.layers.back().attention.head_dim / 2 * 4 : 0), nbytes)
          << family << " " << flavor << " " << t;
      EXPECT_GE(sizes.file_nbytes[t], nbytes);
      EXPECT_LT(sizes.file_nbytes[t], nbytes + 32 * tensors);
    }
  }
}

// By hand: elements of matrices times the bytes of a block over its elements. Feed-forwards of layers i < n/8, i >=
// 7n/8 and each third between have Q6_K in Q4_K_M.
TEST(FileSizes, OfGemma4With31BAreThoseOfItsShapes) {
  const FileSizes sizes = file_sizes(flavor_named("gemma4", "31B"), {FileType::q4_k_m, FileType::q6_k});
  const auto kind = [&](const std::string& name) {
    for (const WeightKind& k : sizes.kinds)
      if (k.name == name) return k;
    return WeightKind();
  };
  const int64_t table = int64_t{262144} * 5376, hidden = int64_t{60} * 21504 * 5376;
  EXPECT_EQ(kind("embed_tokens and head").parameters, table);
  EXPECT_EQ(kind("embed_tokens and head").nbytes, (std::vector<int64_t>{table / 256 * 210, table / 256 * 210}));
  EXPECT_EQ(kind("mlp.gate_proj").tensors, 60);
  EXPECT_EQ(kind("mlp.gate_proj").nbytes, (std::vector<int64_t>{hidden / 256 * 144, hidden / 256 * 210}));
  const int64_t larger = 7 + 8 + 15;
  EXPECT_EQ(kind("mlp.down_proj").nbytes[0], hidden / 60 / 256 * (larger * 210 + (60 - larger) * 144));
  EXPECT_EQ(kind("self_attn.v_proj").tensors, 50) << "keys of the other layers are their values";
  int64_t parameters = 0, q4_k_m = 0, q6_k = 0;
  for (const WeightKind& k : sizes.kinds) parameters += k.parameters, q4_k_m += k.nbytes[0], q6_k += k.nbytes[1];
  EXPECT_EQ(parameters, 30'697'345'280 + 60) << "with a scalar for each layer";
  EXPECT_EQ(q4_k_m, 18'671'228'144);
  EXPECT_EQ(q6_k, 25'185'649'904);
  EXPECT_EQ(sizes.kept_nbytes, (std::vector<int64_t>{q4_k_m, q6_k})) << "all matrices can stay quantized";
}

}  // namespace
}  // namespace tutti::models
