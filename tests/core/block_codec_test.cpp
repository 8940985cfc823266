#include "tutti/core/block_codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/message_of.h"

namespace tutti {
namespace {

template <class T>
T from_hex(std::string_view digits) {
  T value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc()) ADD_FAILURE() << "no hexadecimal number: " << digits;
  return value;
}

std::vector<std::byte> bytes_from(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) bytes.push_back(std::byte{from_hex<uint8_t>(hex.substr(i, 2))});
  return bytes;
}

std::vector<float> values_from(const std::string& hex) {
  std::vector<float> values;
  for (size_t i = 0; i < hex.size(); i += 8) {
    const std::string digits = hex.substr(i, 8);
    values.push_back(digits == "nan_____" ? std::numeric_limits<float>::quiet_NaN()
                                          : std::bit_cast<float>(from_hex<uint32_t>(digits)));
  }
  return values;
}

bool are_same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

// The lines of a verb in the file that block_codec_reference.py wrote.
struct Line {
  BlockFormat format;
  std::string from, to;
};
std::vector<Line> lines_of(const std::string& verb) {
  std::ifstream file(TUTTI_SOURCE_DIR "/tests/golden/block_codec.txt");
  std::vector<Line> lines;
  std::string word, format;
  Line line{};
  while (file >> word >> format >> line.from >> line.to) {
    line.format = block_format_from_name(format);
    if (word == verb) lines.push_back(line);
  }
  return lines;
}

TEST(BlockCodec, DecodesEveryFormatToTheBitsOfGguf) {
  int formats = 0;
  for (uint32_t id = 0; id < 64; ++id) formats += find_block_format(id) != nullptr && can_decode(BlockFormat(id));
  EXPECT_EQ(formats, 11);
  std::vector<bool> seen(64);
  for (const Line& line : lines_of("decode")) {
    const std::vector<float> expected = values_from(line.to);
    std::vector<float> found(expected.size());
    decode_blocks(line.format, bytes_from(line.from), found);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(are_same(found[i], expected[i]))
          << name_of(line.format) << " element " << i << ": " << found[i] << " instead of " << expected[i];
    seen[static_cast<size_t>(line.format)] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), formats);
}

TEST(BlockCodec, EncodesToTheBytesOfGguf) {
  std::vector<bool> seen(64);
  for (const Line& line : lines_of("encode")) {
    const std::vector<std::byte> expected = bytes_from(line.to);
    std::vector<std::byte> found(expected.size());
    encode_blocks(line.format, values_from(line.from), found);
    EXPECT_EQ(found, expected) << name_of(line.format) << " " << line.from;
    seen[static_cast<size_t>(line.format)] = true;
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 4);
}

TEST(BlockCodec, BlocksNeedNoAlignment) {
  const Line line = lines_of("decode").front();
  std::vector<std::byte> bytes = bytes_from(line.from);
  bytes.insert(bytes.begin(), std::byte{0});
  std::vector<float> found(32);
  decode_blocks(line.format, std::span(bytes).subspan(1), found);
  EXPECT_TRUE(are_same(found[31], values_from(line.to)[31]));
}

TEST(BlockCodec, ScalesWhoseReciprocalIsInfiniteDecodeToZero) {
  std::vector<float> values(32, 1e-40F), found(32);
  std::vector<std::byte> block(34);
  encode_blocks(BlockFormat::q8_0, values, block);
  decode_blocks(BlockFormat::q8_0, block, found);
  EXPECT_EQ(found, std::vector<float>(32, 0.0F));
}

TEST(BlockCodec, OtherFormatsAndSizesAreRefused) {
  std::vector<float> values(32);
  std::vector<std::byte> block(34);
  EXPECT_EQ(message_of([&] { decode_blocks(BlockFormat::iq4_nl, block, values); }),
            "decode_blocks: IQ4_NL is not decoded; known are F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K");
  EXPECT_EQ(message_of([&] { encode_blocks(BlockFormat::iq4_nl, values, block); }),
            "encode_blocks: IQ4_NL is not encoded; known are F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K Q6_K");
  EXPECT_EQ(
      message_of([&] { decode_blocks(BlockFormat::q8_0, block, std::span(values).first(31)); }),
      "decode_blocks: 31 elements and 34 bytes are not the same number of Q8_0 blocks of 32 elements in 34 bytes");
}

}  // namespace
}  // namespace tutti
