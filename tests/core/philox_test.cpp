#include "tutti/core/philox.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using Words = std::array<uint32_t, 4>;

// The rows "philox4x32 10" of the known-answer file that the authors distribute with Random123.
TEST(Philox, AnswersAsTheAuthorsSayForZeros) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Philox, AnswersAsTheAuthorsSayForOnes) {
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, AnswersAsTheAuthorsSayForDigitsOfPi) {
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, SplitsA64BitKeyLowWordFirst) {
  EXPECT_EQ(philox_key(0x1122334455667788ull), (PhiloxKey{0x55667788, 0x11223344}));
}

TEST(Philox, EvaluatesAtCompileTime) {
  static_assert(philox4x32({0, 0, 0, 0}, {0, 0})[0] == 0x6627e8d5);
  constexpr Words words = philox4x32({1, 0, 0, 0}, {0, 0});
  EXPECT_NE(words[0], 0x6627e8d5u);
}

}  // namespace
}  // namespace tutti
