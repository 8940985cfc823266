#include "tutti/io/gguf_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/block_codec.h"
#include "tutti/io/gguf.h"
#include "tutti/io/gguf_layout.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/tensor/tensor.h"

namespace tutti {
namespace {

using testing::read_whole_file;
using testing::TemporaryFolder;

const std::string kEveryType = TUTTI_SOURCE_DIR "/tests/golden/gguf/every_type.gguf";

Tensor numbered(const Extents& sizes, DType dtype) {
  const Tensor tensor = Tensor::empty(sizes, dtype);
  for (int64_t i = 0; i < tensor.numel(); ++i)
    store_from_double(static_cast<char*>(tensor.raw_data()) + i * itemsize(dtype), dtype,
                      static_cast<double>(i % 251) / 16 - 7);
  return tensor;
}

TEST(GgufWriter, WritesTheBytesOfThePythonPackage) {
  TemporaryFolder folder;
  const GgufFile original(kEveryType);
  GgufWriter writer(folder / "copy.gguf", original.entries(), original.metadata());
  for (const io::GgufEntry& entry : original.entries()) {
    if (row_of(entry.format).dtype) writer.write(entry.name, original.tensor(entry.name));
    else writer.write_bytes(entry.name, original.bytes(entry.name));
  }
  writer.commit();
  EXPECT_EQ(read_whole_file(folder / "copy.gguf"), read_whole_file(kEveryType));
  EXPECT_EQ(folder.entry_count(), 1);
}

TEST(GgufWriter, ConvertsFloats) {
  TemporaryFolder folder;
  std::vector<io::GgufEntry> entries;
  std::vector<Tensor> values;
  for (const DType from : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    for (const BlockFormat to : {BlockFormat::f32, BlockFormat::f16, BlockFormat::bf16, BlockFormat::q5_1,
                                 BlockFormat::q8_0, BlockFormat::q4_k}) {
      // More elements than a thread converts at a time, and a last part that is shorter.
      entries.push_back(
          {.name = fmt::format("{} to {}", name_of(from), name_of(to)), .format = to, .shape = {275, 256}});
      values.push_back(numbered({275, 256}, from));
    }
  }
  GgufWriter writer(folder / "file", entries, {});
  for (size_t i = 0; i < entries.size(); ++i) writer.write(entries[i].name, values[i]);
  writer.commit();
  const GgufFile file(folder / "file");
  for (size_t i = 0; i < entries.size(); ++i) {
    std::vector<float> floats, found(static_cast<size_t>(values[i].numel())), expected(found.size());
    for (int64_t e = 0; e < values[i].numel(); ++e)
      floats.push_back(static_cast<float>(load_as_double(
          static_cast<const char*>(values[i].raw_data()) + e * itemsize(values[i].dtype()), values[i].dtype())));
    std::vector<std::byte> blocks(static_cast<size_t>(*block_nbytes(entries[i].format, values[i].numel())));
    encode_blocks(entries[i].format, floats, blocks);
    decode_blocks(entries[i].format, blocks, expected);
    decode_blocks(entries[i].format, file.bytes(entries[i].name), found);
    EXPECT_EQ(found, expected) << entries[i].name;
  }
}

TEST(GgufWriter, WritesTheSameBytesOnAnyNumberOfThreads) {
  TemporaryFolder folder;
  // More elements than are held before they are written.
  const Extents sizes{4100, 256};
  const Tensor values = numbered(sizes, DType::bf16);
  std::string expected;
  for (const int threads : {1, 2, 5}) {
    RankContext context({.threads = threads});
    const RankContext::Scope scope(context);
    const std::string path = folder / fmt::format("file{}", threads);
    GgufWriter writer(path, {{.name = "t", .format = BlockFormat::q6_k, .shape = sizes}});
    writer.write("t", values);
    writer.commit();
    if (expected.empty()) expected = read_whole_file(path);
    EXPECT_EQ(read_whole_file(path), expected) << threads;
  }
  std::vector<float> floats(static_cast<size_t>(values.numel()));
  decode_blocks(BlockFormat::bf16, {static_cast<const std::byte*>(values.raw_data()), floats.size() * 2}, floats);
  std::string blocks(static_cast<size_t>(*block_nbytes(BlockFormat::q6_k, values.numel())), '\0');
  encode_blocks(BlockFormat::q6_k, floats, std::as_writable_bytes(std::span(blocks)));
  EXPECT_NE(expected.find(blocks), std::string::npos);
}

TEST(GgufWriter, WritesStridedViewsScalarsAndTensorsWithoutElements) {
  TemporaryFolder folder;
  const Tensor matrix = Tensor::of<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  GgufWriter writer(folder / "file", {{.name = "t", .format = BlockFormat::i32, .shape = {3, 2}},
                                      {.name = "scalar", .format = BlockFormat::f32, .shape = {}},
                                      {.name = "none", .format = BlockFormat::q8_0, .shape = {0, 32}}});
  writer.write("t", matrix.view_as({3, 2}, {1, 3}, 0));
  writer.write("scalar", Tensor::scalar(2.5F));
  writer.write("none", Tensor::empty({0, 32}));
  writer.commit();
  const GgufFile file(folder / "file");
  const Tensor read = file.tensor("t");
  EXPECT_EQ(std::vector<int32_t>(read.data<int32_t>(), read.data<int32_t>() + 6),
            (std::vector<int32_t>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(file.tensor("scalar").item(), 2.5);
  EXPECT_EQ(file.entry("none").shape, (Extents{0, 32}));
}

TEST(GgufWriter, UsesTheAlignmentOfTheMetadata) {
  TemporaryFolder folder;
  ModelMetadata metadata;
  metadata.set("general.alignment", uint32_t{256});
  GgufWriter writer(folder / "file", {{.name = "a", .shape = {1}}, {.name = "b", .shape = {1}}}, metadata);
  writer.write("a", Tensor::of<float>({1}));
  writer.write("b", Tensor::of<float>({2}));
  writer.commit();
  const GgufFile file(folder / "file");
  EXPECT_EQ(file.entry("b").begin, 256);
  EXPECT_EQ(file.tensor("b").item(), 2.0);
}

TEST(GgufWriter, WithoutCommitTheOldFileStays) {
  TemporaryFolder folder;
  const std::string path = folder.write("file", "old");
  {
    GgufWriter writer(path, {{.name = "a", .shape = {1}}});
    EXPECT_EQ(message_of([&] { writer.commit(); }), "'" + path + "': 0 of 1 tensors are written, 'a' is missing");
  }
  EXPECT_EQ(read_whole_file(path), "old");
  EXPECT_EQ(folder.entry_count(), 1);
}

TEST(GgufWriter, OtherTensorsThanAnnouncedAreRefused) {
  TemporaryFolder folder;
  const std::string path = folder / "file", at = "'" + path + "': ";
  GgufWriter writer(path, {{.name = "a", .format = BlockFormat::q8_0, .shape = {2, 32}},
                           {.name = "b", .format = BlockFormat::iq4_nl, .shape = {256}}});
  EXPECT_EQ(message_of([&] { writer.write("b", Tensor::empty({256})); }),
            at + "tensor 1 of 2 is 'a', not 'b'; write them in the order of entries()");
  EXPECT_EQ(message_of([&] { writer.write("a", Tensor::empty({64})); }),
            at + "tensor 'a' is [64] f32 cpu; expected [2, 32] on the cpu");
  EXPECT_EQ(message_of([&] { writer.write("a", Tensor::empty({2, 32}, DType::i32)); }),
            at + "tensor 'a' is [2, 32] i32 cpu, which is not converted to Q8_0; floats are written as F32, F16, BF16 "
                 "and Q4_0 to Q6_K");
  EXPECT_EQ(message_of([&] { writer.write_bytes("a", std::vector<std::byte>(67)); }),
            at + "tensor 'a' [2, 32] Q8_0 takes 68 bytes, 67 are given");
  Tensor odd = numbered({2, 32}, DType::f32);
  odd.data<float>()[3] = INFINITY;
  EXPECT_EQ(message_of([&] { writer.write("a", odd); }),
            at + "tensor 'a': Q8_0 holds finite numbers only, and a block of 32 has one that is not; write F32, F16 or "
                 "BF16");
  writer.write("a", numbered({2, 32}, DType::f32));
  EXPECT_EQ(
      message_of([&] { writer.write("b", Tensor::empty({256})); }),
      at + "tensor 'b' is [256] f32 cpu, which is not converted to IQ4_NL; floats are written as F32, F16, BF16 and "
           "Q4_0 to Q6_K");
  writer.write_bytes("b", std::vector<std::byte>(144));
  EXPECT_EQ(message_of([&] { writer.write("c", Tensor::empty({1})); }),
            at + "all 2 tensors are written; 'c' is not among them");
}

TEST(GgufWriter, NamesSizesAndAlignmentsThatNoReaderTakesAreRefused) {
  using io::gguf_layout;
  EXPECT_EQ(message_of([] { gguf_layout({{.name = std::string(64, 'x'), .shape = {1}}}, {}); }),
            "GGUF: the name of the tensor \"" + std::string(64, 'x') + "\" has 64 bytes, the limit is 63");
  EXPECT_EQ(message_of([] { gguf_layout({{.name = "", .shape = {1}}}, {}); }),
            "GGUF: the name of the tensor \"\" is empty");
  EXPECT_EQ(message_of([] { gguf_layout({{.name = std::string("a\0", 2), .shape = {1}}}, {}); }),
            "GGUF: the name of the tensor \"a\\u0000\" has a zero byte at 1");
  EXPECT_EQ(message_of([] { gguf_layout({{.name = "a\xff", .shape = {1}}}, {}); }),
            "GGUF: the name of the tensor \"a\uFFFD\" is not UTF-8 at byte 1 of 2");
  EXPECT_EQ(message_of([] { gguf_layout({{.name = "a", .shape = {1}}, {.name = "a", .shape = {1}}}, {}); }),
            "GGUF: the name 'a' is used twice");
  EXPECT_EQ(message_of([] { gguf_layout({{.name = "a", .shape = {1, 1, 1, 1, 1}}}, {}); }),
            "GGUF: tensor 'a' is [1, 1, 1, 1, 1], a file holds at most 4 dims");
  EXPECT_EQ(message_of([] { gguf_layout({{.name = "a", .format = BlockFormat::q6_k, .shape = {2, 128}}}, {}); }),
            "GGUF: tensor 'a' [2, 128]: its rows of 128 elements are no whole blocks of Q6_K, which are of 256");
  EXPECT_EQ(message_of([] { gguf_layout({{.name = "a", .shape = {INT64_MAX, 2}}}, {}); }),
            "GGUF: tensor 'a' [9223372036854775807, 2]: its sizes [9223372036854775807, 2] are more than any file "
            "holds");
  const int64_t many = int64_t{1} << 60;
  EXPECT_EQ(message_of([&] {
              std::vector<io::GgufEntry> entries;
              for (const char* name : {"a", "b", "c"})
                entries.push_back({.name = name, .format = BlockFormat::f64, .shape = {many / 2}});
              gguf_layout(entries, {});
            }),
            "GGUF: the tensors up to 'b' are more than any file holds");
  ModelMetadata metadata;
  metadata.set("", uint8_t{1});
  EXPECT_EQ(message_of([&] { gguf_layout({}, metadata); }), "GGUF: the key \"\" is empty");
  for (const MetadataValue& value : {MetadataValue(uint32_t{48}), MetadataValue(uint64_t{32})}) {
    ModelMetadata odd("m");
    odd.set("general.alignment", value);
    EXPECT_EQ(message_of([&] { gguf_layout({}, odd); }),
              fmt::format("'m': key 'general.alignment' is {}, expected u32 and a power of two",
                          odd.at("general.alignment").shown()));
  }
}

}  // namespace
}  // namespace tutti
