#include "tutti/io/safetensors_header.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tutti::io {
namespace {

// A file of this header and `data_nbytes` zero bytes.
std::string file_of(const std::string& json, size_t data_nbytes) {
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + json + std::string(data_nbytes, '\0');
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), "model.safetensors");
}

std::string message_of(const std::string& file) {
  try {
    parse(file);
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'model.safetensors'"), std::string::npos) << error.what();
    return error.what();
  }
  return "accepted";
}

void expect_refused(const std::string& json, size_t data_nbytes, std::string_view part) {
  const std::string message = message_of(file_of(json, data_nbytes));
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

// One tensor "x" described by `rest`.
std::string one(const std::string& rest) { return "{\"x\":{" + rest + "}}"; }

TEST(SafetensorsHeader, ReadsTensorsInTheOrderOfTheirData) {
  const SafetensorsHeader header =
      parse(file_of(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[2,10]},)"
                    R"("a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}   )",
                    10));
  ASSERT_EQ(header.entries.size(), 2u);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[0].dtype, DType::bf16);
  EXPECT_EQ(header.entries[1].shape, (Extents{2, 1}));
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(SafetensorsHeader, ReadsAFileWithoutTensors) { EXPECT_TRUE(parse(file_of("{}", 0)).entries.empty()); }

TEST(SafetensorsHeader, KnowsEveryDtype) {
  for (const char* name :
       {"F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "I32", "I16", "I8", "U8", "BOOL"}) {
    const auto parsed = parse(file_of(one(fmt::format(R"("dtype":"{}","shape":[0],"data_offsets":[0,0])", name)), 0));
    EXPECT_EQ(safetensors_name_of(parsed.entries[0].dtype), name);
  }
}

TEST(SafetensorsHeader, RefusesEveryCutOfAFile) {
  const std::string whole = file_of(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,12])"), 12);
  EXPECT_EQ(message_of(whole), "accepted");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_NE(message_of(whole.substr(0, length)), "accepted") << length;
  }
}

TEST(SafetensorsHeader, RefusesAHeaderLongerThanTheLimit) {
  std::string file = file_of("{}", 0);
  const uint64_t huge = uint64_t{1} << 62;
  std::memcpy(file.data(), &huge, 8);
  EXPECT_NE(message_of(file).find("the limit is 100000000"), std::string::npos);
}

TEST(SafetensorsHeader, RefusesDataThatBelongsToNoTensor) {
  const std::string x = R"("x":{"dtype":"U8","shape":[2],"data_offsets":[)";
  const std::string y = R"("y":{"dtype":"U8","shape":[2],"data_offsets":[)";
  expect_refused("{" + x + "0,2]}," + y + "3,5]}}", 5, "bytes 2 to 3 of the data");
  expect_refused("{" + x + "1,3]}}", 3, "bytes 0 to 1 of the data");
  expect_refused("{" + x + "0,2]}}", 3, "the last 1 bytes belong to no tensor");
  expect_refused("{}", 1, "the last 1 bytes belong to no tensor");
}

TEST(SafetensorsHeader, RefusesTensorsThatOverlap) {
  expect_refused(
      R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3,
      "inside the tensor before it");
}

TEST(SafetensorsHeader, RefusesOffsetsOutsideTheFile) {
  expect_refused(one(R"("dtype":"U8","shape":[9],"data_offsets":[0,9])"), 8, "[0, 9) of 8 bytes");
  expect_refused(one(R"("dtype":"U8","shape":[0],"data_offsets":[3,2])"), 8, "[3, 2)");
  expect_refused(one(R"("dtype":"U8","shape":[0],"data_offsets":[-1,2])"), 8, "x.data_offsets[0]: is -1");
  expect_refused(one(R"("dtype":"U8","shape":[0],"data_offsets":[0,18446744073709551615])"), 8,
                 "x.data_offsets[1]: is 18446744073709551615");
  expect_refused(one(R"("dtype":"U8","shape":[0],"data_offsets":[0])"), 8, "expected [begin, end]");
}

TEST(SafetensorsHeader, RefusesLengthsThatDoNotFitTheShape) {
  expect_refused(one(R"("dtype":"F32","shape":[2],"data_offsets":[0,9])"), 9, "has 9 bytes of data, expected 8");
  expect_refused(one(R"("dtype":"F64","shape":[2],"data_offsets":[0,8])"), 8, "has 8 bytes of data, expected 16");
  expect_refused(one(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"), 0, "more than any file");
  expect_refused(one(R"("dtype":"F32","shape":[1.5],"data_offsets":[0,4])"), 4, "x.shape[0]: is 1.5");
  expect_refused(one(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4])"), 4, "at most 8 sizes");
}

TEST(SafetensorsHeader, RefusesRepeatedKeys) {
  const std::string x = R"("x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  expect_refused("{" + x + "," + x + "}", 2, "header: has the key 'x' twice");
  expect_refused(one(R"("dtype":"U8","dtype":"I8","shape":[2],"data_offsets":[0,2])"), 2,
                 "header: x: has the key 'dtype' twice");
  // The same key in two tensors is no repeat.
  EXPECT_EQ(message_of(file_of("{" + x + R"(,"y":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})", 2)), "accepted");
}

TEST(SafetensorsHeader, RefusesWhatIsNotADescription) {
  expect_refused("[]", 0, "header: is an array of 0, expected an object");
  expect_refused("{\"x\"", 0, "header:1:5: byte 5: not JSON");
  expect_refused(R"({"x":1})", 0, "x: is 1, expected an array or object");
  expect_refused(one(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1)"), 4,
                 "x: has 4 keys, expected exactly dtype, shape and data_offsets");
  expect_refused(one(R"("dtype":"C64","shape":[1],"data_offsets":[0,8])"), 8, "x.dtype: is \"C64\"; known are F64");
  expect_refused(R"({"__metadata__":{"a":1}})", 0, "__metadata__.a: is 1, expected a string");
  expect_refused(R"({"__metadata__":[]})", 0, "__metadata__: is an array of 0");
}

TEST(SafetensorsHeader, RefusesDeepNesting) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  expect_refused(deep, 0, "nested deeper");
}

TEST(SafetensorsHeader, WritesWhatItReads) {
  SafetensorsHeader header;
  header.metadata = {{"note", "caf\u00e9 \"quoted\"\n"}};
  header.entries = {{"w", DType::f32, {2, 3}, 0, 24}, {"b", DType::f8e4m3fn, {}, 24, 25}};
  const std::string bytes = safetensors_header_bytes(header);
  EXPECT_EQ(bytes.size() % 8, 0u);
  const SafetensorsHeader again = parse(bytes + std::string(25, '\0'));
  EXPECT_EQ(again.metadata, header.metadata);
  EXPECT_EQ(again.entries[1].name, "b");
  EXPECT_EQ(again.entries[1].dtype, DType::f8e4m3fn);
  EXPECT_EQ(again.data_start, static_cast<int64_t>(bytes.size()));
}

TEST(SafetensorsHeader, RefusesToWriteWhatItCouldNotRead) {
  SafetensorsHeader header;
  header.entries = {{"w", DType::u8, {1}, 0, 1}, {"w", DType::u8, {1}, 1, 2}};
  EXPECT_THROW(safetensors_header_bytes(header), UsageError);
  header.entries = {{"__metadata__", DType::u8, {1}, 0, 1}};
  EXPECT_THROW(safetensors_header_bytes(header), UsageError);
  header.entries = {{"\xff", DType::u8, {1}, 0, 1}};
  EXPECT_THROW(safetensors_header_bytes(header), UsageError);
}

}  // namespace
}  // namespace tutti::io
