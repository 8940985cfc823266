// Blocks have the bytes of ggml's reference functions, and each code is the nearest one to its element.
#include "tutti/core/block_encode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "tests/core/support/block_inputs.h"
#include "tests/support/message_of.h"
#include "tutti/core/blake2b.h"
#include "tutti/core/block_codec.h"

namespace tutti {
namespace {

using test::BlockInput;
using test::elements_of;
using test::kBlockInputs;

constexpr BlockFormat kQuantized[] = {BlockFormat::q4_0, BlockFormat::q4_1, BlockFormat::q5_0, BlockFormat::q5_1,
                                      BlockFormat::q8_0, BlockFormat::q4_k, BlockFormat::q5_k, BlockFormat::q6_k};

const BlockInput& input_named(std::string_view name) {
  return *std::find_if(std::begin(kBlockInputs), std::end(kBlockInputs),
                       [&](const BlockInput& input) { return input.name == name; });
}

std::vector<std::byte> encoded(BlockFormat format, const std::vector<float>& values) {
  std::vector<std::byte> blocks(static_cast<size_t>(*block_nbytes(format, std::ssize(values))));
  encode_blocks(format, values, blocks);
  return blocks;
}

std::vector<float> decoded(BlockFormat format, const std::vector<std::byte>& blocks, size_t count) {
  std::vector<float> values(count);
  decode_blocks(format, blocks, values);
  return values;
}

std::string digest_of(const std::vector<std::byte>& bytes) {
  Blake2b hash(16);
  hash.add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  std::string text;
  for (const char c : hash.finish()) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

// The file that block_encode_reference.py wrote.
TEST(BlockEncode, HasTheBytesOfGgmlsReferenceFunctions) {
  std::ifstream file(TUTTI_SOURCE_DIR "/tests/golden/block_encode.txt");
  size_t lines = 0;
  for (std::string format, input, digest; file >> format >> input >> digest; ++lines) {
    const BlockFormat named = block_format_from_name(format);
    EXPECT_EQ(digest_of(encoded(named, elements_of(input_named(input), 65536))), digest) << format << " " << input;
  }
  EXPECT_EQ(lines, std::size(kQuantized) * std::size(kBlockInputs));
}

// What the codes of a format are, and the bytes of a block that hold nothing but codes.
struct CodeBytes {
  BlockFormat format;
  int most;
  size_t first, last;
};
constexpr CodeBytes kCodeBytes[] = {{BlockFormat::q4_0, 15, 2, 18},   {BlockFormat::q4_1, 15, 4, 20},
                                    {BlockFormat::q5_0, 31, 2, 22},   {BlockFormat::q5_1, 31, 4, 24},
                                    {BlockFormat::q4_k, 15, 16, 144}, {BlockFormat::q5_k, 31, 16, 176},
                                    {BlockFormat::q6_k, 63, 0, 192}};

// The values of blocks with the same scales and one code for all elements: the lowest or the highest.
std::vector<float> with_codes(const CodeBytes& row, std::vector<std::byte> blocks, std::byte code, size_t count) {
  const auto nbytes = static_cast<size_t>(row_of(row.format).nbytes);
  for (size_t b = 0; b < blocks.size(); b += nbytes)
    for (size_t i = row.first; i < row.last; ++i) blocks[b + i] = code;
  return decoded(row.format, blocks, count);
}

TEST(BlockEncode, CodesAreTheNearestToTheirElements) {
  for (const CodeBytes& row : kCodeBytes) {
    // Codes of the older formats are chosen before their scale and minimum are rounded to f16, by at most one part in
    // 2048 each, which moves an element against the codes by so much and its error by twice that.
    const double slack = row_of(row.format).elements == 32 ? 2 * (row.most + row.most) / 2048.0 : 1e-3;
    for (const char* name : {"normal", "heavy_tails", "mixed_scales", "outliers", "positive", "negative", "large"}) {
      const std::vector<float> values = elements_of(input_named(name), 16384);
      const std::vector<std::byte> blocks = encoded(row.format, values);
      const std::vector<float> found = decoded(row.format, blocks, values.size()),
                               first = with_codes(row, blocks, std::byte{0}, values.size()),
                               last = with_codes(row, blocks, std::byte{0xff}, values.size());
      double worst = 0;  // in steps, beyond the error of the nearest code
      for (size_t i = 0; i < values.size(); ++i) {
        const double x = values[i], begin = first[i], step = (static_cast<double>(last[i]) - begin) / row.most;
        if (step == 0) continue;
        const double code = std::clamp(std::nearbyint((x - begin) / step), 0.0, static_cast<double>(row.most));
        const double least = std::abs(begin + code * step - x), error = std::abs(static_cast<double>(found[i]) - x);
        worst = std::max(worst, (error - least) / std::abs(step));
      }
      EXPECT_LT(worst, slack) << name_of(row.format) << " " << name;
    }
  }
}

// The root of the mean squared error relative to the elements, whose distribution is nearly normal.
double relative_error(BlockFormat format, const std::vector<float>& values) {
  const std::vector<float> found = decoded(format, encoded(format, values), values.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += std::pow(static_cast<double>(found[i]) - static_cast<double>(values[i]), 2);
    size += std::pow(static_cast<double>(values[i]), 2);
  }
  return std::sqrt(error / size);
}

TEST(BlockEncode, ErrorsOfNormalElementsFallWithTheBits) {
  const std::vector<float> values = elements_of(input_named("normal"), 262144);
  // A step of the whole spread of 32 such elements, about 4.1 standard deviations, over the square root of 12.
  const std::pair<BlockFormat, double> bounds[] = {{BlockFormat::q4_0, 4.1 / 15}, {BlockFormat::q4_1, 4.1 / 15},
                                                   {BlockFormat::q4_k, 4.1 / 15}, {BlockFormat::q5_0, 4.1 / 31},
                                                   {BlockFormat::q5_1, 4.1 / 31}, {BlockFormat::q5_k, 4.1 / 31},
                                                   {BlockFormat::q6_k, 4.1 / 63}, {BlockFormat::q8_0, 4.1 / 255}};
  for (const auto& [format, step] : bounds) {
    const double error = relative_error(format, values), expected = step / std::sqrt(12.0);
    EXPECT_LT(error, expected * 1.15) << name_of(format);
    EXPECT_GT(error, expected * 0.7) << name_of(format);
  }
}

TEST(BlockEncode, ZerosAndConstantsKeepTheirValues) {
  for (const BlockFormat format : kQuantized) {
    for (const float value : {0.0F, -0.0F, 1e-38F, 0.5F, -0.75F, 3000.0F, -3000.0F}) {
      const std::vector<float> found = decoded(format, encoded(format, std::vector<float>(256, value)), 256);
      // Scales are f16, those of 8 bits in Q6_K and of 6 bits in Q4_K and Q5_K are the largest, exact ones.
      for (const float number : found) EXPECT_NEAR(number, value, std::abs(value) / 1024 + 1e-7) << name_of(format);
    }
  }
}

TEST(BlockEncode, WritesWholeBlocksOnly) {
  for (const BlockFormat format : kQuantized) {
    const BlockFormatRow& row = row_of(format);
    const auto elements = static_cast<size_t>(row.elements), nbytes = static_cast<size_t>(row.nbytes);
    const std::vector<float> values = elements_of(input_named("outliers"), 3 * elements);
    std::vector<std::byte> blocks(3 * nbytes, std::byte{0xa5});
    encode_blocks(format, std::span(values).subspan(elements, elements), std::span(blocks).subspan(nbytes, nbytes));
    const std::vector<std::byte> all = encoded(format, values);
    for (size_t i = 0; i < blocks.size(); ++i)
      EXPECT_EQ(blocks[i], i / nbytes == 1 ? all[i] : std::byte{0xa5}) << row.name << " byte " << i;
    encode_blocks(format, {}, {});
  }
}

TEST(BlockEncode, RefusesNumbersThatAreNotFinite) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const BlockFormat format : kQuantized) {
    for (const float value : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> values(256, 1.0F);
      values[255] = value;
      EXPECT_EQ(message_of([&] { encoded(format, values); }),
                fmt::format("{} holds finite numbers only, and a block of {} has one that is not; write F32, F16 or "
                            "BF16",
                            name_of(format), row_of(format).elements));
    }
  }
}

// The largest magnitude of which a block may be, and one that is too large.
TEST(BlockEncode, RefusesScalesBeyondF16) {
  const std::tuple<BlockFormat, float, float> limits[] = {
      {BlockFormat::q4_0, 524e3F, 525e3F},       {BlockFormat::q4_1, -65519.0F, -65521.0F},
      {BlockFormat::q4_1, 982e3F, 983e3F},       {BlockFormat::q5_0, 1048e3F, 1049e3F},
      {BlockFormat::q5_1, -65519.0F, -65521.0F}, {BlockFormat::q8_0, 832e4F, 833e4F},
      {BlockFormat::q4_k, 61e6F, 63e6F},         {BlockFormat::q4_k, -412e4F, -413e4F},
      {BlockFormat::q5_k, -412e4F, -413e4F},     {BlockFormat::q6_k, 26e7F, 28e7F},
      {BlockFormat::q6_k, 26e7F, 3e38F}};
  for (const auto& [format, good, bad] : limits) {
    std::vector<float> values(256, 0.0F);
    values[17] = good;
    const std::vector<float> found = decoded(format, encoded(format, values), 256);
    EXPECT_NEAR(found[17] / good, 1, 0.07) << name_of(format);
    values[17] = bad;
    EXPECT_EQ(message_of([&] { encoded(format, values); }),
              fmt::format("{} holds scales up to 65504, and a block of {} with a number of magnitude {} needs larger "
                          "ones; write F32 or BF16",
                          name_of(format), row_of(format).elements, std::abs(bad)));
  }
  for (const BlockFormat format : kQuantized)
    EXPECT_NE(message_of([&] { encoded(format, std::vector<float>(256, -3e38F)); }), "") << name_of(format);
}

}  // namespace
}  // namespace tutti
