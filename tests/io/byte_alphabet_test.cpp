#include "tutti/io/byte_alphabet.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti::io {
namespace {

TEST(ByteAlphabet, WritesBytesAsGpt2Does) {
  EXPECT_EQ(to_byte_alphabet(" a\n"), "\u0120a\u010a");
  EXPECT_EQ(to_byte_alphabet(std::string(1, '\0')), "\u0100");
  EXPECT_EQ(to_byte_alphabet("\xad"), "\u0143");
  EXPECT_EQ(to_byte_alphabet("\xff"), "\u00ff");
}

TEST(ByteAlphabet, ReadsBackEveryByte) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string one(1, static_cast<char>(byte));
    EXPECT_EQ(from_byte_alphabet(to_byte_alphabet(one)), one);
  }
}

TEST(ByteAlphabet, RefusesOtherCharacters) {
  EXPECT_EQ(from_byte_alphabet(" "), std::nullopt);
  EXPECT_EQ(from_byte_alphabet("\u0144"), std::nullopt);
  EXPECT_EQ(from_byte_alphabet("\U0001F600"), std::nullopt);
  EXPECT_EQ(from_byte_alphabet("\xff"), std::nullopt);
}

TEST(ByteAlphabet, OrdersAllBytesByTheirCharacters) {
  const auto& order = byte_alphabet_order();
  EXPECT_EQ(order[0], '!');
  EXPECT_EQ(order[187], 0xFF);
  EXPECT_EQ(order[188], 0);
  EXPECT_EQ(std::set<uint8_t>(order.begin(), order.end()).size(), 256u);
}

}  // namespace
}  // namespace tutti::io
