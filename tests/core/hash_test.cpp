#include "tutti/core/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace tutti {
namespace {

// The published value of XXH3 for no input and seed 0.
TEST(Hash64, EqualsXxh3OfTheEmptyString) { EXPECT_EQ(hash64(""), 0x2D06800538D394C2ull); }

TEST(Hash64, DependsOnTheSeed) { EXPECT_NE(hash64("tutti", 1), hash64("tutti", 2)); }

// A literal is also a pointer, and a seed could be taken for its size.
TEST(Hash64, TakesTheSecondArgumentOfALiteralForTheSeed) {
  EXPECT_EQ(hash64("tutti", uint64_t{1} << 62), hash64(std::string("tutti"), uint64_t{1} << 62));
}

TEST(Hash64, DependsOnEveryByteOfALongInput) {
  std::string text(100000, 'x');
  const uint64_t before = hash64(text);
  text[77777] = 'y';
  EXPECT_NE(hash64(text), before);
}

}  // namespace
}  // namespace tutti
