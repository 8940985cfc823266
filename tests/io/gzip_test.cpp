#include "tutti/io/gzip.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/io/support/gzip_writer.h"
#include "tutti/core/error.h"

namespace tutti {
namespace {

using testing::gzip_of;

std::string expand(const std::string& compressed, int64_t limit_nbytes = kGunzipLimitNbytes) {
  return gunzip(std::as_bytes(std::span(compressed)), "file.gz", limit_nbytes);
}

std::string message_of(const std::string& compressed, int64_t limit_nbytes = kGunzipLimitNbytes) {
  try {
    expand(compressed, limit_nbytes);
  } catch (const EnvironmentError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Gunzip, RestoresEmptyAndLongTexts) {
  std::mt19937 random(1);
  std::string noise(3 << 20, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  for (const std::string& text : {std::string(), std::string("hello"), noise}) EXPECT_EQ(expand(gzip_of(text)), text);
}

TEST(Gunzip, JoinsMembersAndIgnoresZeroPadding) {
  EXPECT_EQ(expand(gzip_of("one ") + gzip_of("two") + std::string(512, '\0')), "one two");
}

TEST(Gunzip, ReadsTheExtraFieldOfDictzip) {
  std::string compressed = gzip_of("entry");
  compressed[3] = 4;  // FEXTRA
  compressed.insert(10, std::string("\x08\x00RA\x04\x00\x01\x00\x00\x00", 10));
  EXPECT_EQ(expand(compressed), "entry");
}

TEST(Gunzip, RefusesOtherData) {
  EXPECT_NE(message_of("plain text").find("'file.gz' is not gzip data"), std::string::npos);
  EXPECT_NE(message_of("").find("not gzip"), std::string::npos);
}

TEST(Gunzip, SaysWhenTheFileIsCutShort) {
  const std::string whole = gzip_of(std::string(10000, 'x') + "end");
  for (size_t length = 2; length < whole.size(); ++length) {
    EXPECT_NE(message_of(whole.substr(0, length)).find("cut short"), std::string::npos) << length;
  }
}

TEST(Gunzip, NoticesAWrongChecksum) {
  std::string compressed = gzip_of("some text");
  compressed[compressed.size() - 5] ^= 1;
  EXPECT_NE(message_of(compressed).find("damaged"), std::string::npos);
}

TEST(Gunzip, RefusesGarbageBehindTheData) {
  EXPECT_NE(message_of(gzip_of("text") + "garbage").find("something else"), std::string::npos);
}

TEST(Gunzip, StopsAtTheLimit) {
  const std::string bomb = gzip_of(std::string(5 << 20, '\0'));
  EXPECT_NE(message_of(bomb, 1 << 20).find("more than 1048576 bytes"), std::string::npos);
}

}  // namespace
}  // namespace tutti
