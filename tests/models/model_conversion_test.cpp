// Models that are written in another format and back have the same tensors, bit for bit, and the same description.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "tests/models/support/family_cases.h"
#include "tests/models/support/first_weights.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/models/decoder.h"
#include "tutti/models/decoder_difference.h"
#include "tutti/models/family.h"
#include "tutti/models/published_folder.h"
#include "tutti/models/published_gguf.h"
#include "tutti/models/weight_source.h"
#include "tutti/nn/module.h"
#include "tutti/nn/published_experts.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/slice.h"

namespace tutti::models {
namespace {

namespace fs = std::filesystem;
using tutti::testing::TemporaryFolder;

bool are_same(const Tensor& a, const Tensor& b) {
  const Tensor x = to_contiguous(a), y = to_contiguous(b);
  return x.dtype() == y.dtype() && x.extents() == y.extents() &&
         std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

// Every tensor of `expected`, under its own name and with its own type.
void expect_same_file(const ModelFile& got, const ModelFile& expected) {
  ASSERT_EQ(got.entries().size(), expected.entries().size());
  for (const ModelTensor& entry : expected.entries()) {
    ASSERT_TRUE(got.contains(entry.name)) << entry.name;
    EXPECT_EQ(describe(got.entry(entry.name)), describe(entry)) << entry.name;
    EXPECT_TRUE(are_same(got.tensor(entry.name), expected.tensor(entry.name))) << entry.name;
  }
}

void expect_same_values(const PublishedModel& got, const PublishedModel& expected) {
  check_described(expected.config(), got.config(), "what was written");
  const WeightSource a(got), b(expected);
  ASSERT_EQ(a.weights().size(), b.weights().size());
  for (size_t i = 0; i < a.weights().size(); ++i) {
    EXPECT_EQ(a.weights()[i].name, b.weights()[i].name);
    EXPECT_EQ(difference(a.values(a.weights()[i]), b.values(b.weights()[i])), 0) << a.weights()[i].name;
  }
}

// Their descriptions have no place in GGUF files.
bool has_gguf(const std::string& name) {
  for (const char* without : {"qwen3_moe-mixed", "llama-yarn-mscale", "gemma2-27b"})
    if (name == without) return false;
  return !name.ends_with("-window");
}

class ConvertedModels : public ::testing::TestWithParam<std::string> {
 protected:
  fs::path source() const { return families_folder() / GetParam(); }
  const TemporaryFolder work_;
};
INSTANTIATE_TEST_SUITE_P(, ConvertedModels, ::testing::ValuesIn(family_cases("config.json")), name_of_case);

TEST_P(ConvertedModels, AreTheSameAsFolders) {
  const WrittenModel written = write_published_folder(PublishedModel(source()), work_ / "folder");
  const ModelFile got(work_ / "folder"), expected(source());
  expect_same_file(got, expected);
  EXPECT_EQ(got.metadata().at("format").text(), "pt");
  EXPECT_EQ(written.tensors, std::ssize(expected.entries()));
  expect_same_values(PublishedModel(work_ / "folder"), PublishedModel(source()));
  EXPECT_EQ(tutti::testing::read_whole_file(work_ / "folder/generation_config.json"),
            tutti::testing::read_whole_file((source() / "generation_config.json").string()));
}

TEST_P(ConvertedModels, AreTheSameAfterTheWayToGgufAndBack) {
  const PublishedModel model(source());
  if (!has_gguf(GetParam())) {
    const std::string told = message_of([&] { write_published_gguf(model, work_ / "model.gguf"); });
    EXPECT_NE(told.find("a GGUF file of the architecture"), std::string::npos) << told;
    EXPECT_EQ(work_.entry_count(), 0);
    return;
  }
  write_published_gguf(model, work_ / "model.gguf");
  const PublishedModel gguf(work_ / "model.gguf");
  expect_same_values(gguf, model);
  const ModelFile written(work_ / "model.gguf");
  for (const ModelTensor& entry : written.entries())
    EXPECT_TRUE(entry.sizes.ndim() > 1 || entry.dtype == DType::f32) << entry.name;
  write_published_folder(gguf, work_ / "back");
  expect_same_file(ModelFile(work_ / "back"), ModelFile(source()));
  expect_same_values(PublishedModel(work_ / "back"), model);
}

TEST_P(ConvertedModels, HaveTheSameLogits) {
  const SafetensorsFile expected((source() / "expected.safetensors").string());
  const PublishedModel model(source());
  write_published_folder(model, work_ / "folder");
  if (has_gguf(GetParam())) write_published_gguf(model, work_ / "model.gguf");
  const auto logits = [&](const fs::path& path) {
    const PublishedModel published(path);
    Decoder decoder(published.config(), kFamilyPositions);
    published.load(decoder);
    return decoder.forward(batch_in(expected));
  };
  EXPECT_TRUE(are_same(logits(work_ / "folder"), logits(source())));
  if (!has_gguf(GetParam())) return;
  // Files hold epsilon and the divisors of angles in f32.
  EXPECT_LT(difference(logits(work_ / "model.gguf"), logits(source())), expected.contains("positions") ? 5e-4 : 1e-6);
}

class ConvertedGguf : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, ConvertedGguf, ::testing::ValuesIn(family_cases("model.gguf")), name_of_case);

// llama.cpp's converter wrote the files that are read here.
TEST_P(ConvertedGguf, AreTheSameAfterTheWayToAFolderAndBack) {
  const TemporaryFolder work;
  const fs::path source = families_folder() / GetParam() / "model.gguf";
  write_published_folder(PublishedModel(source), work / "folder");
  write_published_gguf(PublishedModel(work / "folder"), work / "back.gguf");
  const ModelFile got(work / "back.gguf"), expected(source);
  ASSERT_EQ(got.entries().size(), expected.entries().size());
  for (const ModelTensor& entry : expected.entries()) {
    if (entry.name != "rope_freqs.weight") {
      EXPECT_TRUE(are_same(got.tensor(entry.name), expected.tensor(entry.name))) << entry.name;
    } else {  // computed in f32 there
      EXPECT_LT(difference(got.tensor(entry.name), expected.tensor(entry.name)), 1e-6);
    }
  }
  for (const auto& [key, value] : expected.metadata().entries()) {
    if (key.starts_with("general.") || key == "qwen3moe.feed_forward_length") continue;
    ASSERT_TRUE(got.metadata().contains(key)) << key;
    EXPECT_EQ(got.metadata().at(key).value(), value) << key;
  }
}

TEST_P(ConvertedGguf, AreTheSameBytesAsGguf) {
  const TemporaryFolder work;
  const fs::path source = families_folder() / GetParam() / "model.gguf";
  write_published_gguf(PublishedModel(source), work / "copy.gguf");
  expect_same_file(ModelFile(work / "copy.gguf"), ModelFile(source));
}

std::string types_of(const ModelFile& file) {
  std::map<std::string, int> counts;
  for (const ModelTensor& entry : file.entries()) ++counts[std::string(entry.type_name())];
  std::string text;
  for (const auto& [type, count] : counts) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, type);
  return text;
}

TEST(ConvertedTypes, AreThoseThatAreAskedFor) {
  const TemporaryFolder work;
  write_first_weights(flavor_named("llama", "tiny"), DType::bf16, work / "model");
  const PublishedModel model(work / "model");
  const auto gguf = [&](const std::string& name, std::optional<FileType> type) {
    write_published_gguf(model, work / name, {.type = type});
    const ModelFile file(work / name);
    return fmt::format("{}, {}", types_of(file), file.metadata().at("general.file_type").whole());
  };
  EXPECT_EQ(gguf("default.gguf", {}), "15 bf16, 5 f32, 32");
  EXPECT_EQ(gguf("f32.gguf", FileType::f32), "20 f32, 0");
  EXPECT_EQ(gguf("f16.gguf", FileType::f16), "15 f16, 5 f32, 1");
  EXPECT_EQ(gguf("q8_0.gguf", FileType::q8_0), "15 Q8_0, 5 f32, 7");
  const auto folder = [&](const std::string& name, const fs::path& source, std::optional<FileType> type) {
    write_published_folder(PublishedModel(source), work / name, {.type = type});
    return types_of(ModelFile(work / name));
  };
  EXPECT_EQ(folder("f16", work / "model", FileType::f16), "20 f16");
  EXPECT_EQ(folder("back", work / "default.gguf", {}), "20 bf16");
  EXPECT_EQ(folder("decoded", work / "q8_0.gguf", {}), "20 f32");
  EXPECT_EQ(folder("rounded", work / "q8_0.gguf", FileType::bf16), "20 bf16");
  EXPECT_EQ(tutti::testing::read_whole_file(work / "f16/config.json").find("\"bfloat16\""), std::string::npos);
  // Blocks stay blocks, byte for byte.
  write_published_gguf(PublishedModel(work / "q8_0.gguf"), work / "again.gguf");
  EXPECT_EQ(tutti::testing::read_whole_file(work / "again.gguf"), tutti::testing::read_whole_file(work / "q8_0.gguf"));
  EXPECT_EQ(message_of([&] { folder("q8_0", work / "model", FileType::q8_0); }),
            "q8_0 is no type of safetensors files; expected f32, bf16 or f16");
}

// 24 features of an expert are no whole block.
TEST(ConvertedTypes, AreF16WhereRowsAreNoWholeBlocks) {
  const TemporaryFolder work;
  write_first_weights(flavor_named("qwen3", "tiny_moe"), DType::bf16, work / "model");
  write_published_gguf(PublishedModel(work / "model"), work / "model.gguf", {.type = FileType::q8_0});
  const ModelFile file(work / "model.gguf");
  EXPECT_EQ(describe(file.entry("blk.0.ffn_down_exps.weight")), "[6, 32, 24] f16");
  EXPECT_EQ(describe(file.entry("blk.0.ffn_up_exps.weight")), "[6, 24, 32] Q8_0");
  EXPECT_EQ(describe(file.entry("blk.0.ffn_gate_inp.weight")), "[6, 32] f32");
  // Experts are decoded one by one.
  write_published_folder(PublishedModel(work / "model.gguf"), work / "back");
  const Tensor all = file.tensor("blk.1.ffn_up_exps.weight");
  EXPECT_TRUE(
      are_same(ModelFile(work / "back").tensor("model.layers.1.mlp.experts.4.up_proj.weight"), select(all, 0, 4)));
}

TEST(ConvertedTypes, HoldTheValues) {
  const TemporaryFolder work;
  write_first_weights(flavor_named("llama", "tiny"), DType::f32, work / "model", [](Decoder& model) {
    for (const nn::NamedParameter& p : model.named_parameters())
      if (p.name == "model.layers.0.mlp.up_proj.weight") p.parameter.master().data<float>()[7] = 1e5F;
  });
  const std::string expected = "element 7 is 100000, and f16 holds at most 65504; write bf16 or f32";
  EXPECT_EQ(message_of(
                [&] { write_published_folder(PublishedModel(work / "model"), work / "f16", {.type = FileType::f16}); }),
            "model.layers.0.mlp.up_proj.weight: " + expected);
  EXPECT_EQ(message_of([&] {
              write_published_gguf(PublishedModel(work / "model"), work / "f16.gguf", {.type = FileType::f16});
            }),
            "blk.0.ffn_up.weight: " + expected);
  EXPECT_EQ(work.entry_count(), 1) << "nothing half written is left";
  write_published_gguf(PublishedModel(work / "model"), work / "bf16.gguf", {.type = FileType::bf16});
}

TEST(ConvertedFolders, HaveSeveralFilesBesideAnIndex) {
  const TemporaryFolder work;
  write_first_weights(flavor_named("qwen3", "tiny_moe"), DType::bf16, work / "model");
  const WrittenModel written =
      write_published_folder(PublishedModel(work / "model"), work / "parts", {.shard_nbytes = 20'000});
  EXPECT_GT(written.files, 3);
  for (int64_t i = 1; i <= written.files; ++i)
    EXPECT_TRUE(fs::exists(work / fmt::format("parts/model-{:05}-of-{:05}.safetensors", i, written.files)));
  EXPECT_FALSE(fs::exists(work / "parts/model.safetensors"));
  expect_same_file(ModelFile(work / "parts"), ModelFile(work / "model"));
  const std::string index = tutti::testing::read_whole_file(work / "parts/model.safetensors.index.json");
  EXPECT_NE(index.find(fmt::format("\"total_size\": {}", written.nbytes)), std::string::npos) << index;
}

TEST(ConvertedFolders, HoldAHeadThatIsTheEmbeddingOnce) {
  const TemporaryFolder work;
  DecoderConfig config = flavor_named("llama", "tiny");
  config.tied_embeddings = false;
  write_first_weights(config, DType::f32, work / "model", [](Decoder& model) {
    nn::StateDict state = model.state_dict();
    for (auto& [name, tensor] : state)
      if (name == "lm_head.weight") tensor = clone(state.front().second);
    model.load_state_dict(state);
  });
  const WrittenModel folder = write_published_folder(PublishedModel(work / "model"), work / "tied"),
                     gguf = write_published_gguf(PublishedModel(work / "model"), work / "tied.gguf");
  EXPECT_TRUE(PublishedModel(work / "tied").config().tied_embeddings);
  EXPECT_FALSE(ModelFile(work / "tied").contains("lm_head.weight"));
  EXPECT_FALSE(ModelFile(work / "tied.gguf").contains("output.weight"));
  for (const WrittenModel& written : {folder, gguf}) {
    EXPECT_EQ(written.source_nbytes - written.nbytes, config.vocab * config.dim * 4) << "the sizes before and after";
    const std::string note =
        fmt::format("The head is the embedding and is stored once, where the source has its {:.1f} MB twice.",
                    static_cast<double>(config.vocab * config.dim * 4) / 1e6);
    EXPECT_EQ(std::count(written.notes.begin(), written.notes.end(), note), 1);
  }
  const WrittenModel again = write_published_gguf(PublishedModel(work / "tied"), work / "again.gguf");
  EXPECT_EQ(again.source_nbytes, again.nbytes);
}

TEST(ConvertedFolders, HaveNoHeadThatTheDescriptionDenies) {
  const TemporaryFolder work;
  DecoderConfig config = flavor_named("llama", "tiny");
  config.tied_embeddings = false;
  write_first_weights(config, DType::f32, work / "model");
  config.tied_embeddings = true;
  std::ofstream(work / "model/config.json") << published_config_json(config, DType::f32);
  const std::string told = message_of([&] { write_published_folder(PublishedModel(work / "model"), work / "other"); });
  EXPECT_NE(told.find("lm_head.weight differs from model.embed_tokens.weight"), std::string::npos) << told;
}

TEST(ModelConversion, IsRefusedWithTheReason) {
  const TemporaryFolder work;
  const auto told = [&](const fs::path& source, const std::string& target) {
    return message_of([&] {
      if (target.ends_with(".gguf")) write_published_gguf(PublishedModel(source), work / target);
      else write_published_folder(PublishedModel(source), work / target);
    });
  };
  EXPECT_EQ(told(families_folder() / "mistral-window", "model.gguf"),
            "a GGUF file of the architecture llama does not describe mistral mistral-window:\n"
            "  layer 0, window of keys: 11, written as 0\n"
            "  layer 1, window of keys: 11, written as 0\n"
            "  layer 2, window of keys: 11, written as 0");
  EXPECT_NE(told(families_folder() / "qwen3_moe-mixed", "model.gguf").find("layer 0, experts: 0, written as 5"),
            std::string::npos);
  EXPECT_NE(told(families_folder() / "llama-yarn-mscale", "model.gguf").find("rotary angles: base 10000, yarn by "),
            std::string::npos);
  work.write("there.gguf", "");
  work.write("there/file", "");
  EXPECT_EQ(told(families_folder() / "llama", "there.gguf"), (work / "there.gguf") + " exists; name a new file");
  EXPECT_EQ(told(families_folder() / "llama", "there"), (work / "there") + " exists; name a new folder");
  DecoderConfig config = flavor_named("llama", "tiny");
  write_first_weights(config, DType::f32, work / "model");
  config.layers.resize(1), config.layers[0].feed_forward.hidden_dim = 65, config.layers[0].attention.qkv_bias = true;
  config.layers[0].attention.output_bias = true;
  std::ofstream(work / "model/config.json") << published_config_json(config, DType::f32);
  const std::string message = told(work / "model", "new");
  for (const char* line :
       {"does not have the tensors of llama model:\n", "\n  missing: model.layers.0.self_attn.q_proj.bias",
        "\n  model.layers.0.mlp.gate_proj.weight: [64, 32] f32, expected [65, 32]\n", "more"})
    EXPECT_NE(message.find(line), std::string::npos) << message;
}

}  // namespace
}  // namespace tutti::models
