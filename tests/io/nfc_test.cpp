#include "tutti/io/nfc.h"

#include <gtest/gtest.h>

namespace tutti::io {
namespace {

std::string nfc(std::string_view text) {
  std::string storage;
  return std::string(to_nfc(text, storage));
}

TEST(Nfc, ReturnsNormalTextItself) {
  std::string storage;
  const std::string_view text = "plain, caf\u00e9, \u4e2d\u6587, \uac00, \U0001F600";
  EXPECT_EQ(to_nfc(text, storage).data(), text.data());
}

TEST(Nfc, ComposesMarks) {
  EXPECT_EQ(nfc("cafe\u0301"), "caf\u00e9");
  EXPECT_EQ(nfc("a\u0323\u0302"), "\u1ead");  // composes twice
}

// The examples of Unicode Standard Annex 15, figures 3 to 5.
TEST(Nfc, FollowsTheAnnexOnSingletonsAndOrder) {
  EXPECT_EQ(nfc("\u212b"), "\u00c5");  // angstrom sign
  EXPECT_EQ(nfc("\u2126"), "\u03a9");  // ohm sign
  EXPECT_EQ(nfc("\u1e9b\u0323"), "\u1e9b\u0323");
  EXPECT_EQ(nfc("d\u0307\u0323"), "\u1e0d\u0307");
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");
}

TEST(Nfc, LeavesExcludedCompositionsApart) { EXPECT_EQ(nfc("\u0958"), "\u0915\u093c"); }

TEST(Nfc, DoesNotJoinOverABlockingMark) { EXPECT_EQ(nfc("a\u0305\u0301"), "a\u0305\u0301"); }

TEST(Nfc, ComposesHangul) {
  EXPECT_EQ(nfc("\u1100\u1161"), "\uac00");
  EXPECT_EQ(nfc("\u1112\u1161\u11ab"), "\ud55c");
  EXPECT_EQ(nfc("\uac00\u11a8"), "\uac01");
}

TEST(Nfc, KeepsInvalidBytesAndNormalizesAroundThem) {
  EXPECT_EQ(nfc("e\u0301\xff"
                "e\u0301\xe2\x82"),
            "\u00e9\xff\u00e9\xe2\x82");
}

TEST(Nfc, IsIdempotent) {
  const std::string once = nfc("\u0344\u1e0b\u0323 \u2f82\u0f71\u0f72 \ufb2c");
  EXPECT_EQ(nfc(once), once);
}

TEST(Nfd, DecomposesAndOrdersMarks) {
  std::vector<uint32_t> text = {0x1E69, 0xAC01, 0x61, 0x301, 0x323};
  to_nfd(text);
  EXPECT_EQ(text, (std::vector<uint32_t>{0x73, 0x323, 0x307, 0x1100, 0x1161, 0x11A8, 0x61, 0x323, 0x301}));
}

}  // namespace
}  // namespace tutti::io
