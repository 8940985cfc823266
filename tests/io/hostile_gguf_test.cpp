// Headers of GGUF files that say what no writer would: refused by file, key or tensor, and byte.
#include <gtest/gtest.h>

#include "tests/io/support/gguf_bytes.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/gguf.h"

namespace tutti {
namespace {

using namespace std::string_literals;
using testing::GgufBytes;

constexpr uint64_t kHuge = uint64_t{1} << 63;

std::string refusal_of(const std::string& bytes) {
  try {
    io::parse_gguf_header(std::as_bytes(std::span(bytes)), "a.gguf");
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "accepted";
}

// The refusal of a file, without what all begin with.
std::string fault_of(const GgufBytes& file) {
  const std::string message = refusal_of(file.bytes), prefix = "'a.gguf' is not a whole GGUF file: ";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

GgufBytes with_tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type = 0,
                      uint64_t offset = 0) {
  return GgufBytes::head(1, 0).tensor(name, dims, type, offset).pad().zeros(1024);
}

GgufBytes with_value(uint32_t type) { return GgufBytes::head(0, 1).text("key").u32(type); }

TEST(HostileGguf, OtherMagicsVersionsAndByteOrders) {
  EXPECT_EQ(fault_of({"GG"}), "the magic takes 4 bytes, and 2 are left; the file may be cut short (byte 0)");
  EXPECT_EQ(fault_of({"GGML\1\0\0\0"s}), "it begins with \"GGML\" instead of GGUF (byte 0)");
  EXPECT_EQ(fault_of({"FUGG\3\0\0\0"s}), "it is big-endian; convert it to little-endian (byte 0)");
  EXPECT_EQ(fault_of({"GGUF\0\0\0\3"s}),
            "its version is 0x3000000, so it is big-endian; convert it to little-endian (byte 4)");
  for (const uint32_t version : {0U, 1U, 4U})
    EXPECT_EQ(fault_of(GgufBytes::head(0, 0, version)),
              fmt::format("it has version {}; known are 2 and 3 (byte 4)", version));
}

TEST(HostileGguf, CountsThatDoNotFitInTheFile) {
  EXPECT_EQ(fault_of(GgufBytes::head(kHuge, 0)),
            "it claims 9223372036854775808 tensors, and 0 bytes are left (byte 8)");
  EXPECT_EQ(fault_of(GgufBytes::head(0, ~uint64_t{0})),
            "it claims 18446744073709551615 keys, and 0 bytes are left (byte 16)");
  EXPECT_EQ(fault_of(GgufBytes::head(2, 0).zeros(49)), "it claims 2 tensors, and 49 bytes are left (byte 8)");
  EXPECT_EQ(fault_of(GgufBytes::head((1 << 20) + 1, 0).zeros(25 * ((1 << 20) + 1))),
            "it has 1048577 tensors, the limit is 1048576 (byte 8)");
  EXPECT_EQ(fault_of(GgufBytes::head(0, (1 << 16) + 1).zeros(14 * ((1 << 16) + 1))),
            "it has 65537 keys, the limit is 65536 (byte 16)");
}

TEST(HostileGguf, NamesOfKeys) {
  const auto named = [](std::string_view name) { return fault_of(GgufBytes::head(0, 1).text(name).u32(0).zeros(8)); };
  EXPECT_EQ(named(""), "key 1 of 1: its name is empty (byte 24)");
  EXPECT_EQ(named("a\0b"s), "key 1 of 1: its name has a zero byte at 1 (byte 24)");
  EXPECT_EQ(named("ab\xff"), "key 1 of 1: its name is not UTF-8 at byte 2 of 3 (byte 24)");
  EXPECT_EQ(named(std::string(65536, 'k')), "key 1 of 1: its name has 65536 bytes, the limit is 65535 (byte 24)");
  EXPECT_EQ(named(std::string(65535, 'k')), "accepted");
  EXPECT_EQ(
      fault_of(GgufBytes::head(0, 1).u64(kHuge).zeros(8)),
      "key 1 of 1: its name takes 9223372036854775808 bytes, and 8 are left; the file may be cut short (byte 32)");
  GgufBytes twice = GgufBytes::head(0, 2);
  twice.text("key").u32(0).zeros(1).text("key").u32(0).zeros(1);
  EXPECT_EQ(fault_of(twice), "key 'key': it is there twice (byte 40)");
}

TEST(HostileGguf, ValuesOfKeys) {
  EXPECT_EQ(fault_of(with_value(13).zeros(8)), "key 'key': its type is 13; known are 0 to 12 (byte 35)");
  EXPECT_EQ(fault_of(with_value(~0U).zeros(8)), "key 'key': its type is 4294967295; known are 0 to 12 (byte 35)");
  EXPECT_EQ(fault_of(with_value(12).zeros(7)),
            "key 'key': its 1 values of type f64 take 8 bytes each, and 7 are left (byte 39)");
  EXPECT_EQ(fault_of(with_value(7).put<uint8_t>(2)), "key 'key': a bool is 2, expected 0 or 1 (byte 39)");
  EXPECT_EQ(fault_of(with_value(8).u64(9).zeros(8)),
            "key 'key': its text takes 9 bytes, and 8 are left; the file may be cut short (byte 47)");
}

TEST(HostileGguf, Arrays) {
  const auto array = [](uint32_t element, uint64_t count) { return with_value(9).u32(element).u64(count).zeros(8); };
  EXPECT_EQ(fault_of(array(9, 0)), "key 'key': it is an array of arrays, which ggml does not read either (byte 39)");
  EXPECT_EQ(fault_of(array(13, 0)), "key 'key': the type of its elements is 13; known are 0 to 12 (byte 39)");
  for (const uint64_t count : {kHuge, ~uint64_t{0}, uint64_t{1} << 61, uint64_t{9}}) {
    EXPECT_EQ(fault_of(array(0, count)),
              fmt::format("key 'key': its {} values of type u8 take 1 bytes each, and 8 are left (byte 51)", count));
    EXPECT_EQ(fault_of(array(10, count)),
              fmt::format("key 'key': its {} values of type u64 take 8 bytes each, and 8 are left (byte 51)", count));
    EXPECT_EQ(fault_of(array(8, count)),
              fmt::format("key 'key': it claims {} texts, and 8 bytes are left (byte 43)", count));
  }
  GgufBytes bools = with_value(9).u32(7).u64(3);
  bools.bytes += "\1\0\7"s;
  EXPECT_EQ(fault_of(bools), "key 'key': a bool is 7, expected 0 or 1 (byte 53)");
  GgufBytes many = with_value(9).u32(8).u64((1U << 24) + 1);
  many.bytes.resize(many.bytes.size() + (size_t{1} << 27) + 8);
  EXPECT_EQ(fault_of(many), "key 'key': it has 16777217 texts, the limit is 16777216 (byte 43)");
}

TEST(HostileGguf, Alignments) {
  const auto aligned = [](uint32_t type, uint64_t value, size_t nbytes) {
    GgufBytes file = GgufBytes::head(0, 1).text("general.alignment").u32(type);
    file.bytes.append(reinterpret_cast<const char*>(&value), nbytes);
    return fault_of(file);
  };
  EXPECT_EQ(aligned(4, 0, 4), "key 'general.alignment' is u32 0, expected u32 and a power of two (byte 57)");
  EXPECT_EQ(aligned(4, 24, 4), "key 'general.alignment' is u32 24, expected u32 and a power of two (byte 57)");
  EXPECT_EQ(aligned(10, 32, 8), "key 'general.alignment' is u64 32, expected u32 and a power of two (byte 61)");
  EXPECT_EQ(aligned(4, uint64_t{1} << 31, 4), "accepted");
}

TEST(HostileGguf, NamesOfTensors) {
  const auto named = [](const std::string& name) { return fault_of(with_tensor(name, {4})); };
  EXPECT_EQ(named(""), "tensor 1 of 1: its name is empty (byte 24)");
  EXPECT_EQ(named("a\0b"s), "tensor 1 of 1: its name has a zero byte at 1 (byte 24)");
  EXPECT_EQ(named("\xc0\x80"), "tensor 1 of 1: its name is not UTF-8 at byte 0 of 2 (byte 24)");
  EXPECT_EQ(named(std::string(64, 'n')), "tensor 1 of 1: its name has 64 bytes, the limit is 63 (byte 24)");
  EXPECT_EQ(named(std::string(63, 'n')), "accepted");
  GgufBytes twice = GgufBytes::head(2, 0);
  twice.tensor("a", {4}, 0, 0).tensor("a", {4}, 0, 32).pad().zeros(64);
  EXPECT_EQ(fault_of(twice), "tensor 'a': it is there twice (byte 57)");
}

TEST(HostileGguf, SizesOfTensors) {
  EXPECT_EQ(fault_of(with_tensor("a", {1, 1, 1, 1, 1})), "tensor 'a': it has 5 dims, the limit is 4 (byte 33)");
  EXPECT_EQ(fault_of(with_tensor("a", {1, kHuge})),
            "tensor 'a': its size 1 is 9223372036854775808, more than any file holds (byte 45)");
  const uint64_t half = uint64_t{1} << 32;
  for (const std::vector<uint64_t>& dims :
       {std::vector<uint64_t>{half, half},
        {half, half, 0},
        {0, half, half},
        {kHuge - 1},
        {256, kHuge - 1},
        {uint64_t{1} << 16, uint64_t{1} << 16, uint64_t{1} << 16, uint64_t{1} << 16}}) {
    const std::string fault = fault_of(with_tensor("a", dims));
    EXPECT_EQ(fault.find("tensor 'a': its sizes ["), 0U) << fault;
    EXPECT_NE(fault.find("] are more than any file holds (byte 33)"), std::string::npos) << fault;
  }
  EXPECT_EQ(fault_of(with_tensor("a", {128, 4}, 14)),
            "tensor 'a': its rows of 128 elements are no whole blocks of Q6_K, which are of 256 (byte 33)");
  EXPECT_EQ(fault_of(with_tensor("a", {0, 3}, 14)), "accepted");
  for (const uint32_t type : {4U, 5U, 31U, 38U, 43U, ~0U})
    EXPECT_EQ(fault_of(with_tensor("a", {4}, type)), fmt::format("tensor 'a': its type {} is unknown (byte 45)", type));
}

TEST(HostileGguf, PlacesOfTensors) {
  EXPECT_EQ(
      fault_of(with_tensor("a", {4}, 0, 32)),
      "tensor 'a': its data begins at byte 32 of the data, expected 0, where the tensors before it end (byte 49)");
  const auto second_at = [](uint64_t offset) {
    GgufBytes file = GgufBytes::head(2, 0);
    file.tensor("a", {9}, 0, 0).tensor("b", {4}, 0, offset).pad().zeros(1024);
    return fault_of(file);
  };
  EXPECT_EQ(second_at(64), "accepted");
  // Overlapping, misaligned, with a gap, and so far that the sum wraps.
  for (const uint64_t offset : {uint64_t{0}, uint64_t{32}, uint64_t{36}, uint64_t{96}, kHuge, ~uint64_t{31}})
    EXPECT_EQ(second_at(offset), fmt::format("tensor 'b': its data begins at byte {} of the data, expected 64, where "
                                             "the tensors before it end (byte 82)",
                                             offset));
  EXPECT_EQ(fault_of(with_tensor("a", {1 << 20})),
            "tensor 'a': it takes bytes [0, 0 + 4194304) of the data, and the file has 1088; it may be cut short (byte "
            "49)");
  EXPECT_EQ(fault_of(GgufBytes::head(1, 0).tensor("a", {9}, 0, 0).pad().zeros(35)),
            "tensor 'a': its data ends at byte 100, and the file has 99; it may be cut short (byte 64)");
}

TEST(HostileGguf, AFileThatIsCutAnywhereIsRefused) {
  const std::string path = TUTTI_SOURCE_DIR "/tests/golden/gguf/every_type.gguf";
  const std::string whole = testing::read_whole_file(path);
  const GgufFile file(path);
  const io::GgufEntry& last = file.entries().back();
  // The padding behind the last tensor may be missing.
  const size_t end = whole.size() - static_cast<size_t>(io::gguf_padded(last.end, 32) - last.end);
  for (size_t nbytes = 0; nbytes < whole.size(); ++nbytes) {
    const std::string message = refusal_of(whole.substr(0, nbytes));
    if (nbytes >= end) {
      EXPECT_EQ(message, "accepted") << nbytes;
    } else {
      EXPECT_EQ(message.find("'a.gguf' is not a whole GGUF file: "), 0U) << nbytes << ": " << message;
      EXPECT_NE(message.find(" (byte "), std::string::npos) << nbytes << ": " << message;
    }
  }
}

TEST(HostileGguf, BytesBehindTheLastTensorAreIgnored) {
  GgufBytes file = with_tensor("a", {4});
  EXPECT_EQ(fault_of(file.zeros(3)), "accepted");
}

}  // namespace
}  // namespace tutti
