// The ids that end the texts of published models, and the sampling that their files suggest.
#include "tutti/models/generation_defaults.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/byte_tokenizer.h"
#include "tutti/io/safetensors.h"
#include "tutti/tensor/tensor.h"

namespace tutti::models {
namespace {

using tutti::testing::TemporaryFolder;
using Ids = std::vector<int32_t>;

TEST(GenerationDefaults, AreThoseOfQwensFile) {
  const GenerationDefaults d = parse_generation_defaults(
      R"({"bos_token_id": 151643, "do_sample": true, "eos_token_id": [151645, 151643], "pad_token_id": 151643,
          "temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05, "transformers_version": "4.51.0"})",
      "generation_config.json");
  EXPECT_EQ(d.do_sample, true);
  EXPECT_EQ(d.temperature, 0.6);
  EXPECT_EQ(d.top_k, 20);
  EXPECT_EQ(d.top_p, 0.95);
  EXPECT_EQ(d.min_p, std::nullopt);
  EXPECT_EQ(d.repetition_penalty, 1.05);
  EXPECT_EQ(d.max_new_tokens, std::nullopt);
  EXPECT_EQ(d.eos_token_ids, (Ids{151645, 151643}));
}

TEST(GenerationDefaults, MayBeMissingOrNullOrSingle) {
  const GenerationDefaults none = parse_generation_defaults(
      R"({"_from_model_config": true, "eos_token_id": null, "temperature": null, "stop_strings": null, "top_k": null})",
      "file");
  EXPECT_TRUE(none.eos_token_ids.empty() && none.stop_strings.empty() && none.suppress_tokens.empty());
  EXPECT_FALSE(none.do_sample || none.temperature || none.top_k || none.top_p || none.max_new_tokens);
  const GenerationDefaults one = parse_generation_defaults(
      R"({"eos_token_id": 2, "stop_strings": "User:", "suppress_tokens": [5, 7, 5], "max_new_tokens": 64,
          "temperature": 1, "min_p": 0.05, "do_sample": false})",
      "file");
  EXPECT_EQ(one.eos_token_ids, Ids{2});
  EXPECT_EQ(one.stop_strings, std::vector<std::string>{"User:"});
  EXPECT_EQ(one.suppress_tokens, (Ids{5, 7})) << "each once";
  EXPECT_EQ(one.max_new_tokens, 64);
  EXPECT_EQ(one.temperature, 1.0);
  EXPECT_EQ(one.min_p, 0.05);
  EXPECT_EQ(one.do_sample, false);
  EXPECT_TRUE(parse_generation_defaults(R"({"eos_token_id": -1})", "file").eos_token_ids.empty());
}

TEST(GenerationDefaults, AreRefusedWithTheirKeyAndValue) {
  const std::pair<const char*, const char*> cases[] = {
      {"[1]", "file: is an array of 1, expected an object"},
      {R"({"eos_token_id": "</s>"})", "eos_token_id"},
      {R"({"eos_token_id": [2, -1]})", "eos_token_id[1]"},
      {R"({"eos_token_id": [[2]]})", "eos_token_id[0]"},
      {R"({"eos_token_id": 2147483648})", "2147483648"},
      {R"({"eos_token_id": 1.5})", "eos_token_id"},
      {R"({"do_sample": 1})", "do_sample"},
      {R"({"temperature": "hot"})", "temperature"},
      {R"({"temperature": -0.5})", "temperature: is -0.5, expected at least 0"},
      {R"({"top_k": 0.5})", "top_k"},
      {R"({"top_k": -1})", "top_k"},
      {R"({"top_p": 1.5})", "top_p: is 1.5, expected at least 0 and at most 1"},
      {R"({"min_p": -1})", "min_p: is -1, expected at least 0 and at most 1"},
      {R"({"repetition_penalty": 0})", "repetition_penalty: is 0, expected a number above 0"},
      {R"({"max_new_tokens": 0})", "max_new_tokens"},
      {R"({"max_new_tokens": 9223372036854775807})", "max_new_tokens"},
      {R"({"stop_strings": {"a": "b"}})", "stop_strings: is an object, expected a text or an array of texts"},
      {R"({"stop_strings": ["a", ""]})", "stop_strings: has an empty text, which every text contains; leave it out"},
      {R"({"stop_strings": [1]})", "stop_strings[0]"},
      {R"({"suppress_tokens": [1, null]})", "suppress_tokens[1]"},
      {R"({"temperature": 1e999})", "file:1:"},
      {R"({"top_k": 1, "top_k": 2})", "has the key 'top_k' twice"}};
  for (const auto& [json, message] : cases) {
    const std::string said = message_of([&, text = json] { parse_generation_defaults(text, "file"); });
    EXPECT_NE(said.find(message), std::string::npos) << json << ": " << said;
    EXPECT_NE(said.find("file"), std::string::npos) << said;
  }
}

// A folder with one tensor and these files.
Ids ends_of_folder(const std::string& generation, const std::string& config) {
  const TemporaryFolder folder;
  const std::vector<std::pair<std::string, Tensor>> tensors{{"a", Tensor::of<float>({1})}};
  write_safetensors(folder / "model.safetensors", tensors);
  if (!generation.empty()) folder.write("generation_config.json", generation);
  if (!config.empty()) folder.write("config.json", config);
  const Ids ends = generation_defaults(ModelFile(folder.path()), ByteTokenizer()).eos_token_ids;
  EXPECT_EQ(generation_defaults(ModelFile(folder / "model.safetensors"), ByteTokenizer()).eos_token_ids, ends);
  return ends;
}

TEST(GenerationDefaults, EndTextsAsTheFirstFileSaysThatNamesAnId) {
  EXPECT_EQ(ends_of_folder(R"({"eos_token_id": [7, 8]})", R"({"eos_token_id": 9})"), (Ids{7, 8}));
  EXPECT_EQ(ends_of_folder(R"({"top_k": 3})", R"({"eos_token_id": [9, 10]})"), (Ids{9, 10}));
  EXPECT_EQ(ends_of_folder("", R"({"eos_token_id": 1, "text_config": {"eos_token_id": 106}})"), Ids{106});
  EXPECT_EQ(ends_of_folder(R"({"eos_token_id": []})", R"({"eos_token_id": null})"), Ids{*ByteTokenizer().eos_id()});
  EXPECT_EQ(ends_of_folder("", ""), Ids{*ByteTokenizer().eos_id()});
  const std::string said = message_of([] { ends_of_folder(R"({"eos_token_id": true})", ""); });
  EXPECT_NE(said.find("generation_config.json"), std::string::npos) << said;
}

class OnlyMetadata final : public ModelFileReader {
 public:
  explicit OnlyMetadata(ModelMetadata metadata) : metadata_(std::move(metadata)) {}
  const std::vector<ModelTensor>& entries() const override { return entries_; }
  const ModelMetadata& metadata() const override { return metadata_; }
  Tensor tensor(std::string_view name) const override { throw UsageError(std::string(name)); }

 private:
  std::vector<ModelTensor> entries_;
  ModelMetadata metadata_;
};

GenerationDefaults defaults_of_gguf(const std::function<void(ModelMetadata&)>& describe) {
  ModelMetadata metadata("model.gguf");
  describe(metadata);
  return generation_defaults(ModelFile("model.gguf", "gguf", std::make_unique<OnlyMetadata>(std::move(metadata))),
                             ByteTokenizer());
}

TEST(GenerationDefaults, OfGgufFilesEndTextsByIdAndByName) {
  const std::vector<std::string> tokens{"<|endoftext|>", "a", "<|im_end|>", "<|eot_id|>", "</s>", "<end_of_turn>", "b"};
  const GenerationDefaults d = defaults_of_gguf([&](ModelMetadata& m) {
    m.set("tokenizer.ggml.tokens", tokens);
    m.set("tokenizer.ggml.token_type", std::vector<int32_t>{3, 1, 3, 4, 1, 3, 1});
    m.set("tokenizer.ggml.eos_token_id", uint32_t{2});
    m.set("tokenizer.ggml.eom_token_id", uint32_t{6});
    m.set("tokenizer.ggml.suppress_tokens", std::vector<int32_t>{1, 6, 1});
    m.set("general.sampling.temp", 0.25F);
    m.set("general.sampling.top_k", int32_t{64});
    m.set("general.sampling.top_p", 0.5F);
    m.set("general.sampling.min_p", 0.0F);
    m.set("general.sampling.penalty_repeat", 1.5F);
  });
  EXPECT_EQ(d.eos_token_ids, (Ids{2, 6, 0, 3, 5})) << "a normal token does not end a text by its name";
  EXPECT_EQ(d.suppress_tokens, (Ids{1, 6}));
  EXPECT_EQ(d.temperature, 0.25);
  EXPECT_EQ(d.top_k, 64);
  EXPECT_EQ(d.top_p, 0.5);
  EXPECT_EQ(d.min_p, 0.0);
  EXPECT_EQ(d.repetition_penalty, 1.5);
  EXPECT_EQ(defaults_of_gguf([&](ModelMetadata& m) { m.set("tokenizer.ggml.tokens", tokens); }).eos_token_ids,
            (Ids{0, 2, 3, 4, 5}))
      << "no types";
  EXPECT_EQ(defaults_of_gguf([](ModelMetadata&) {}).eos_token_ids, Ids{*ByteTokenizer().eos_id()});
}

TEST(GenerationDefaults, OfGgufFilesAreRefusedWithTheirKey) {
  const std::pair<const char*, MetadataValue> cases[] = {{"tokenizer.ggml.eos_token_id", "2"},
                                                         {"tokenizer.ggml.eot_token_id", uint32_t{4294967295U}},
                                                         {"tokenizer.ggml.tokens", std::vector<int32_t>{1}},
                                                         {"tokenizer.ggml.suppress_tokens", int32_t{1}},
                                                         {"tokenizer.ggml.suppress_tokens", std::vector<int32_t>{-1}},
                                                         {"general.sampling.temp", -1.0F},
                                                         {"general.sampling.top_k", 0.5F},
                                                         {"general.sampling.top_p", std::nanf("")}};
  for (const auto& [key, value] : cases) {
    const std::string said =
        message_of([&, k = key, v = value] { defaults_of_gguf([&](ModelMetadata& m) { m.set(k, v); }); });
    EXPECT_NE(said.find(key), std::string::npos) << said;
    EXPECT_NE(said.find("model.gguf"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace tutti::models
