// The keys of published models give the numbers of parameters that transformers counts, and the flavors of that name.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/models/decoder.h"
#include "tutti/models/decoder_plan.h"
#include "tutti/models/family.h"
#include "tutti/runtime/json_document.h"

namespace tutti::models {
namespace {

struct PublishedSize {
  std::string name, keys;
  int64_t parameters, active_parameters;
};

// A line of the file is one model.
std::vector<PublishedSize> published_sizes() {
  std::ifstream file(TUTTI_SOURCE_DIR "/tests/models/families/parameter_counts.json");
  std::vector<PublishedSize> sizes;
  for (std::string line; std::getline(file, line);) {
    const size_t keys = line.find("\"config\": ");
    if (keys == std::string::npos || line.find("\"bert\"") != std::string::npos) continue;
    const JsonDocument document(line.substr(0, line.rfind('}') + 1), {"parameter_counts.json"});
    const JsonValue top = document.top();
    sizes.push_back({top.find("name")->string(), line.substr(keys + 10, line.rfind("}}") + 1 - keys - 10),
                     top.find("parameters")->whole(), top.find("active_parameters")->whole()});
  }
  return sizes;
}

// "Qwen2.5-7B" is the flavor "2.5-7B" of qwen2.
std::string flavor_of(const std::string& name) {
  for (const std::string prefix :
       {"Llama-", "Mistral-", "Mixtral-", "Qwen3-", "Qwen", "Gemma-2-", "Gemma-3-", "Gemma-4-"})
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  return name;
}

TEST(PublishedSizes, AreThoseOfTransformersAndOfTheFlavors) {
  const tutti::testing::TemporaryFolder folder;
  const std::vector<PublishedSize> sizes = published_sizes();
  EXPECT_GE(sizes.size(), 37u);
  for (const PublishedSize& size : sizes) {
    const DecoderConfig config = read_published_config(folder.write("config.json", size.keys));
    EXPECT_EQ(parameter_count(config), size.parameters) << size.name;
    EXPECT_EQ(active_parameter_count(config), size.active_parameters) << size.name;
    const DecoderConfig flavor = flavor_named(config.family, flavor_of(size.name));
    EXPECT_TRUE(flavor.layers == config.layers) << size.name;
    EXPECT_EQ(flavor.dim, config.dim) << size.name;
    EXPECT_EQ(flavor.vocab, config.vocab) << size.name;
    EXPECT_EQ(flavor.tied_embeddings, config.tied_embeddings) << size.name;
    EXPECT_EQ(flavor.norm_eps, config.norm_eps) << size.name;
    EXPECT_EQ(flavor.embedding_scale, config.embedding_scale) << size.name;
    EXPECT_EQ(flavor.logits_cap, config.logits_cap) << size.name;
    EXPECT_EQ(flavor.zero_centered_norms, config.zero_centered_norms) << size.name;
    EXPECT_EQ(flavor.per_layer_inputs, config.per_layer_inputs) << size.name;
    EXPECT_EQ(flavor.layer_scalars, config.layer_scalars) << size.name;
  }
}

// A head of keys and values is not divided, nor a leaf of a sum over features: the gradient of what keys read.
TEST(PublishedSizes, AreRefusedOverRanksThatWouldDivideHeadsOrLeaves) {
  struct Row {
    const char *family, *flavor;
    int64_t largest;
    const char* bounds;
  };
  for (const Row& row :
       {Row{"llama", "SmolLM2-135M", 1, "3 key/value heads (1)"},
        Row{"llama", "SmolLM2-360M", 1, "5 key/value heads (1)"},
        Row{"qwen2", "2.5-0.5B", 1, "the sum over 128 elements of the key heads, whose leaves have 128 (1)"},
        Row{"gemma3", "270M", 1, "1 key/value head (1)"},
        Row{"mistral", "7B-v0.3", 8,
            "8 key/value heads (8), the sum over 1024 elements of the key heads, whose leaves have 128 (8)"}}) {
    const DecoderConfig config = flavor_named(row.family, row.flavor);
    EXPECT_EQ(largest_tensor_parallel_degree(config), row.largest) << config.name();
    EXPECT_EQ(
        message_of([&] { check_tensor_parallel(config, 2 * row.largest); }),
        fmt::format("{}: tensor parallelism over {} ranks would not have the bits of one rank; expected a power of "
                    "two up to {}, for degrees are bounded by {}",
                    config.name(), 2 * row.largest, row.largest, row.bounds));
  }
}

// Small flavors, for counting is not building.
TEST(PublishedSizes, AreThoseOfTheModelThatIsBuilt) {
  for (const NamedFamily& family : family_table()) {
    for (const DecoderConfig& config : family.row->flavors()) {
      if (config.layers.size() > 40) continue;
      EXPECT_EQ(Decoder(config, 8).parameter_count(), parameter_count(config)) << config.name();
      EXPECT_EQ(config.family, family.name);
    }
  }
}

}  // namespace
}  // namespace tutti::models
