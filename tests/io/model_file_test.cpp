#include "tutti/io/model_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/io/safetensors_shards.h"

namespace tutti {
namespace {

using testing::read_whole_file;
using testing::TemporaryFolder;
using Named = std::vector<std::pair<std::string, Tensor>>;

Named sample() {
  return {{"b.weight", Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3})}, {"a.bias", Tensor::of<int32_t>({7, 8})}};
}

std::vector<ModelTensor> entries_of(const Named& tensors) {
  std::vector<ModelTensor> entries;
  for (const auto& [name, tensor] : tensors)
    entries.push_back({.name = name, .sizes = tensor.extents(), .dtype = tensor.dtype()});
  return entries;
}

void write(const std::string& path, std::string_view format, const Named& tensors, const ModelMetadata& metadata = {}) {
  const auto writer = create_model_file(path, format, entries_of(tensors), metadata);
  for (const ModelTensor& entry : writer->entries()) {
    for (const auto& [name, tensor] : tensors) {
      if (name == entry.name) writer->write(name, tensor);
    }
  }
  writer->commit();
}

void expect_sample(const ModelFile& file) {
  EXPECT_EQ(file.entries().size(), 2U);
  for (const auto& [name, tensor] : sample()) {
    const ModelTensor& entry = file.entry(name);
    EXPECT_EQ(entry.sizes, tensor.extents());
    EXPECT_EQ(entry.dtype, tensor.dtype());
    EXPECT_EQ(entry.blocks, std::nullopt);
    EXPECT_TRUE(entry.is_decoded());
    const auto nbytes = static_cast<size_t>(tensor.nbytes());
    ASSERT_EQ(entry.bytes.size(), nbytes);
    EXPECT_EQ(std::memcmp(entry.bytes.data(), tensor.raw_data(), nbytes), 0);
    const Tensor values = file.tensor(name);
    EXPECT_EQ(values.raw_data(), static_cast<const void*>(entry.bytes.data()));
    EXPECT_TRUE(values.storage()->is_read_only());
  }
}

TEST(ModelFile, FormatsAreKnownByContentWhateverTheName) {
  TemporaryFolder folder;
  ModelMetadata metadata;
  metadata.set("general.architecture", "llama");
  for (const char* format : {"safetensors", "gguf"}) {
    for (const char* name : {"a.safetensors", "a.gguf", "a"}) {
      write(folder / name, format, sample(), metadata);
      const ModelFile file(folder / name);
      EXPECT_EQ(file.format(), format) << name;
      EXPECT_EQ(file.path(), folder / name);
      EXPECT_EQ(file.metadata().at("general.architecture").text(), "llama");
      expect_sample(file);
    }
  }
}

TEST(ModelFile, AnIndexAndFoldersAreOpened) {
  TemporaryFolder folder;
  std::filesystem::create_directory(folder / "shards");
  write_safetensors_shards(folder / "shards/model.safetensors", sample(), {{"format", "pt"}}, 2);
  for (const char* path : {"shards", "shards/model.safetensors", "shards/model.safetensors.index.json"}) {
    const ModelFile file(folder / path);
    EXPECT_EQ(file.path(), folder / "shards/model.safetensors.index.json");
    EXPECT_EQ(file.metadata().at("format").text(), "pt");
    expect_sample(file);
    EXPECT_TRUE(holds_model(folder / path));
  }
  std::filesystem::create_directory(folder / "one");
  write(folder / "one/some-name.gguf", "gguf", sample());
  expect_sample(ModelFile(folder / "one"));
  EXPECT_EQ(ModelFile(folder / "one").path(), folder / "one/some-name.gguf");
  write(folder / "one/other.gguf", "gguf", sample());
  EXPECT_EQ(message_of([&] { ModelFile(folder / "one"); }),
            "the folder " + folder / "one" + " holds 2 .gguf files; name one of them, as " + folder / "one/other.gguf");
  write(folder / "one/model.safetensors", "safetensors", sample());
  EXPECT_EQ(ModelFile(folder / "one").format(), "safetensors");
}

TEST(ModelFile, WithoutAModelItSaysWhatIsExpected) {
  TemporaryFolder folder;
  EXPECT_FALSE(holds_model(folder.path()));
  EXPECT_FALSE(holds_model(folder / "absent"));
  EXPECT_EQ(message_of([&] { ModelFile(folder.path()); }),
            "the folder " + folder.path() +
                " holds no model; expected one of: model.safetensors, model.safetensors.index.json, one .gguf file");
  const std::string path = folder.write("notes.txt", "some text\n");
  EXPECT_EQ(message_of([&] { ModelFile{path}; }), "'" + path +
                                                      "' is no model file: it has 10 bytes and begins with \"some "
                                                      "tex\"; expected the content of safetensors or gguf");
  EXPECT_THROW(ModelFile(folder / "absent.gguf"), EnvironmentError);
  EXPECT_THROW(ModelFile(folder / std::string(5000, 'n')), EnvironmentError);
  EXPECT_FALSE(holds_model(folder / std::string(5000, 'n')));
}

TEST(ModelFile, DamagedFilesAreExplainedByTheReaderOfTheirName) {
  TemporaryFolder folder;
  for (const auto& [name, fault] : {std::pair{"a.safetensors", "is not a whole safetensors file"},
                                    std::pair{"a.gguf", "is not a whole GGUF file"}}) {
    try {
      ModelFile{folder.write(name, "some text")};
      FAIL() << name;
    } catch (const EnvironmentError& error) {
      EXPECT_NE(std::string(error.what()).find(fault), std::string::npos) << error.what();
    }
  }
}

TEST(ModelFile, BlocksAreGivenRawAndDecoded) {
  const ModelFile file(TUTTI_SOURCE_DIR "/tests/golden/gguf/every_type.gguf");
  const ModelTensor& entry = file.entry("blocks.Q4_K");
  EXPECT_EQ(entry.blocks, BlockFormat::q4_k);
  EXPECT_EQ(entry.dtype, DType::f32);
  EXPECT_EQ(entry.bytes.size(), 288U);
  EXPECT_EQ(describe(entry), "[2, 256] Q4_K");
  EXPECT_EQ(describe(file.entry("plain.float16")), "[2, 3, 5] f16");
  EXPECT_EQ(file.tensor("blocks.Q4_K").extents(), (Extents{2, 256}));
  EXPECT_FALSE(file.entry("blocks.IQ4_NL").is_decoded());
  EXPECT_EQ(message_of([&] { file.tensor("blocks.Q5_K_M"); }),
            "'" + file.path() + "' has no tensor 'blocks.Q5_K_M' among its 17; did you mean 'blocks.Q5_K'?");
}

TEST(ModelFileWriter, SafetensorsHaveTheBytesOfWriteSafetensors) {
  TemporaryFolder folder;
  ModelMetadata metadata;
  metadata.set("format", "pt");
  write(folder / "a", "safetensors", sample(), metadata);
  write_safetensors(folder / "b", sample(), {{"format", "pt"}});
  EXPECT_EQ(read_whole_file(folder / "a"), read_whole_file(folder / "b"));
}

TEST(ModelFileWriter, ConvertsToTheDTypesOfItsEntries) {
  TemporaryFolder folder;
  for (const char* format : {"safetensors", "gguf"}) {
    const auto writer = create_model_file(folder / "a", format, {{.name = "w", .sizes = {2}, .dtype = DType::bf16}});
    writer->write("w", Tensor::of<float>({1.00390625F, -2.5F}));
    writer->commit();
    const Tensor read = ModelFile(folder / "a").tensor("w");
    EXPECT_EQ(to_float(read.data<bfloat16>()[0]), 1.0F) << format;
    EXPECT_EQ(to_float(read.data<bfloat16>()[1]), -2.5F) << format;
  }
}

TEST(ModelFileWriter, WhatAFormatDoesNotHoldIsRefused) {
  TemporaryFolder folder;
  const std::string path = folder / "a", at = "'" + path + "': ";
  EXPECT_EQ(message_of([&] { create_model_file(path, "ggml", {}); }),
            "unknown format of model files 'ggml'; did you mean 'gguf'? Known: safetensors, gguf");
  EXPECT_EQ(message_of([&] { model_format_of_name(path); }),
            "'" + path + "' names no format of model files; expected a name that ends with .safetensors or .gguf");
  EXPECT_EQ(model_format_of_name("x.gguf"), "gguf");
  EXPECT_EQ(message_of([&] {
              create_model_file(path, "safetensors", {{.name = "w", .sizes = {32}, .blocks = BlockFormat::q8_0}});
            }),
            at + "tensor 'w' is Q8_0, which safetensors files do not hold; decode it, or write GGUF");
  ModelMetadata metadata;
  metadata.set("count", uint32_t{1});
  EXPECT_EQ(message_of([&] { create_model_file(path, "safetensors", {}, metadata); }),
            at + "key 'count' is u32 1; safetensors files hold only texts");
  EXPECT_EQ(message_of([&] { create_model_file(path, "gguf", {{.name = "w", .sizes = {1}, .dtype = DType::u8}}); }),
            at + "tensor 'w' is u8, which GGUF files do not hold; expected f32 f16 bf16 f64 i8 i16 i32 i64 or blocks");
  const auto writer =
      create_model_file(path, "safetensors", {{.name = "b", .sizes = {1}}, {.name = "a", .sizes = {2}}});
  EXPECT_EQ(message_of([&] { writer->write("b", Tensor::of<float>({1})); }),
            at + "tensor 1 of 2 is 'a', not 'b'; write them in the order of entries()");
  EXPECT_EQ(message_of([&] { writer->write("a", Tensor::of<float>({1})); }),
            at + "tensor 'a' is [1] f32 cpu; expected [2] on the cpu");
  EXPECT_EQ(message_of([&] { writer->write("a", Tensor::of<int32_t>({1, 2})); }),
            at + "tensor 'a' is [2] i32 cpu, which is not converted to f32");
  EXPECT_EQ(message_of([&] { writer->write_bytes("a", std::vector<std::byte>(7)); }),
            at + "tensor 'a' [2] f32 takes 8 bytes, 7 are given");
  writer->write_bytes("a", std::vector<std::byte>(8));
  EXPECT_EQ(message_of([&] { writer->commit(); }), at + "1 of 2 tensors are written, 'b' is missing");
  writer->write("b", Tensor::of<float>({1}));
  EXPECT_EQ(message_of([&] { writer->write("c", Tensor::of<float>({1})); }),
            at + "all 2 tensors are written; 'c' is not among them");
  EXPECT_EQ(folder.entry_count(), 1);  // the temporary one
}

}  // namespace
}  // namespace tutti
