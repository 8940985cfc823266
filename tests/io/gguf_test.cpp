#include "tutti/io/gguf.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/io/support/gguf_bytes.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/io/safetensors.h"
#include "tutti/tensor/tensor.h"

namespace tutti {
namespace {

using testing::GgufBytes;
using testing::read_whole_file;
using testing::TemporaryFolder;

// Made by the Python package gguf, see gguf_reference.py.
const std::string kEveryType = TUTTI_SOURCE_DIR "/tests/golden/gguf/every_type.gguf";
const std::string kDecoded = TUTTI_SOURCE_DIR "/tests/golden/gguf/decoded.safetensors";

bool are_same(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.extents() == b.extents() &&
         std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0;
}

TEST(Gguf, ReadsEveryTypeOfMetadata) {
  const GgufFile file(kEveryType);
  EXPECT_EQ(file.version(), 3U);
  const ModelMetadata& keys = file.metadata();
  EXPECT_EQ(keys.size(), 25U);
  EXPECT_EQ(keys.entries()[0].first, "general.architecture");
  EXPECT_EQ(keys.at("general.architecture").text(), "llama");
  const std::vector<std::pair<std::string, MetadataValue>> scalars = {{"uint8", uint8_t{200}},
                                                                      {"int8", int8_t{-100}},
                                                                      {"uint16", uint16_t{60000}},
                                                                      {"int16", int16_t{-30000}},
                                                                      {"uint32", uint32_t{4000000000}},
                                                                      {"int32", int32_t{-2000000000}},
                                                                      {"float32", 0.15625F},
                                                                      {"bool", true},
                                                                      {"string", "na\u00efve \u2581text\n"},
                                                                      {"uint64", ~uint64_t{0}},
                                                                      {"int64", INT64_MIN},
                                                                      {"float64", 0.1}};
  for (const auto& [type, value] : scalars) EXPECT_EQ(keys.at("scalar." + type).value(), value) << type;
  const std::vector<std::pair<std::string, MetadataValue>> arrays = {
      {"uint8", std::vector<uint8_t>{200, 0, 1}},
      {"int8", std::vector<int8_t>{-100, 0, 1}},
      {"uint16", std::vector<uint16_t>{60000, 0, 1}},
      {"int16", std::vector<int16_t>{-30000, 0, 1}},
      {"uint32", std::vector<uint32_t>{4000000000, 0, 1}},
      {"int32", std::vector<int32_t>{-2000000000, 0, 1}},
      {"float32", std::vector<float>{0.15625F, 0, 1}},
      {"bool", std::vector<bool>{true, false, true}},
      {"string", std::vector<std::string>(2, "na\u00efve \u2581text\n")},
      {"uint64", std::vector<uint64_t>{~uint64_t{0}, 0, 1}},
      {"int64", std::vector<int64_t>{INT64_MIN, 0, 1}},
      {"float64", std::vector<double>{0.1, 0, 1}}};
  for (const auto& [type, value] : arrays) EXPECT_EQ(keys.at("array." + type).value(), value) << type;
}

TEST(Gguf, TensorsHaveTheValuesThatThePythonPackageDecodes) {
  const GgufFile file(kEveryType);
  const SafetensorsFile decoded(kDecoded);
  EXPECT_EQ(file.entries().size(), 17U);
  int compared = 0;
  for (const io::SafetensorsEntry& expected : decoded.entries()) {
    if (!file.contains(expected.name)) continue;
    EXPECT_TRUE(are_same(file.tensor(expected.name), decoded.tensor(expected.name))) << expected.name;
    ++compared;
  }
  EXPECT_EQ(compared, 15);
  const Tensor narrow = file.tensor("plain.bfloat16"), wide = decoded.tensor("as_float32.bfloat16");
  for (int64_t i = 0; i < wide.numel(); ++i) EXPECT_EQ(to_float(narrow.data<bfloat16>()[i]), wide.data<float>()[i]);
}

TEST(Gguf, SizesAreRowMajorAndBytesAreThoseOfTheFile) {
  const GgufFile file(kEveryType);
  const io::GgufEntry& entry = file.entry("plain.int16");
  EXPECT_EQ(entry.shape, (Extents{2, 3, 5}));
  EXPECT_EQ(entry.format, BlockFormat::i16);
  EXPECT_EQ(file.bytes("plain.int16").size(), 60U);
  EXPECT_EQ(file.bytes("blocks.Q6_K").size(), 420U);
}

TEST(Gguf, PlainNumbersAreReadOnlyViewsThatOutliveTheFileObject) {
  Tensor view;
  {
    const GgufFile file(kEveryType);
    view = file.tensor("plain.float32");
    EXPECT_EQ(static_cast<const void*>(file.bytes("plain.float32").data()), view.raw_data());
  }
  EXPECT_TRUE(view.storage()->is_read_only());
  EXPECT_TRUE(are_same(view, SafetensorsFile(kDecoded).tensor("plain.float32")));
}

TEST(Gguf, BlocksThatAreNotDecodedAndUnknownNamesAreRefused) {
  const GgufFile file(kEveryType);
  EXPECT_EQ(message_of([&] { file.tensor("blocks.IQ4_NL"); }),
            "'" + kEveryType +
                "': tensor 'blocks.IQ4_NL' is IQ4_NL, which is not decoded; convert the file to Q8_0 or a float type");
  EXPECT_EQ(message_of([&] { file.tensor("blocks.Q8_1"); }),
            "'" + kEveryType + "' has no tensor 'blocks.Q8_1' among its 17; did you mean 'blocks.Q4_1'?");
}

TEST(Gguf, VersionTwoAndOtherAlignmentsAreRead) {
  TemporaryFolder folder;
  GgufBytes file = GgufBytes::head(2, 1, 2);
  file.text("general.alignment").u32(4).u32(8);
  file.tensor("a", {3}, 0, 0).tensor("b", {1, 1}, 0, 16).pad(8);
  file.put(1.0F).put(2.0F).put(3.0F).pad(8).put(4.0F);
  const GgufFile read(folder.write("file", file.bytes));
  EXPECT_EQ(read.version(), 2U);
  EXPECT_TRUE(are_same(read.tensor("a"), Tensor::of<float>({1, 2, 3})));
  EXPECT_TRUE(are_same(read.tensor("b"), Tensor::of<float>({4}, {1, 1})));
}

TEST(Gguf, ScalarsAndTensorsWithoutElementsAreRead) {
  TemporaryFolder folder;
  GgufBytes file = GgufBytes::head(3, 0);
  file.tensor("none", {32, 0}, 8, 0).tensor("scalar", {}, 0, 0).tensor("behind", {0}, 0, 32).pad();
  file.put(2.5F);
  const GgufFile read(folder.write("file", file.bytes));
  EXPECT_EQ(read.tensor("none").extents(), (Extents{0, 32}));
  EXPECT_EQ(read.tensor("scalar").item(), 2.5);
  EXPECT_EQ(read.tensor("behind").numel(), 0);
  const GgufFile empty(folder.write("empty", GgufBytes::head(0, 0).bytes));
  EXPECT_TRUE(empty.entries().empty());
}

TEST(Gguf, DataThatIsNotAlignedIsCopied) {
  TemporaryFolder folder;
  GgufBytes file = GgufBytes::head(1, 1);
  file.text("general.alignment").u32(4).u32(1);
  file.tensor("x", {2}, 0, 0);
  if (file.bytes.size() % 4 == 0) FAIL() << "the sample is aligned";
  file.put(1.0F).put(2.0F);
  EXPECT_TRUE(are_same(GgufFile(folder.write("file", file.bytes)).tensor("x"), Tensor::of<float>({1, 2})));
}

}  // namespace
}  // namespace tutti
