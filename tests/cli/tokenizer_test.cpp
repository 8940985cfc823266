#include <gtest/gtest.h>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

const std::string kFolder = TUTTI_SOURCE_DIR "/tests/io/tokenizers/";

TEST(Tokenizer, EncodesAndDecodes) {
  const Workplace work;
  const std::string tokenizer = kFolder + "llama3.json ";
  const Output ids = work.tutti("tokenizer encode " + tokenizer + "'a b'");
  EXPECT_EQ(ids.status, 0) << ids.err;
  EXPECT_EQ(work.tutti("tokenizer decode " + tokenizer + ids.out.substr(0, ids.out.find('\n'))).out, "a b\n");
  work.write("ids", "104, 105\n33");
  EXPECT_EQ(work.tutti("tokenizer decode byte < ids").out, "hi!\n");
  work.write("text", "hi!");
  EXPECT_EQ(work.tutti("tokenizer encode byte < text").out, "104 105 33 \n");
}

TEST(Tokenizer, MakesSpecialTokensWhenAsked) {
  const Workplace work;
  const auto encode = [&](const std::string& arguments) {
    return work.tutti("tokenizer encode " + kFolder + arguments).out;
  };
  EXPECT_EQ(encode("bert.json '[SEP]' --special"), "3 \n");
  EXPECT_NE(encode("bert.json '[SEP]'"), "3 \n");
  const std::string plain = encode("bert.json x");
  EXPECT_EQ(encode("bert.json x --add-special-tokens"), "2 " + plain.substr(0, plain.size() - 1) + "3 \n");
  EXPECT_EQ(encode("bert.json x --bos"), encode("bert.json x --add-special-tokens"));
  EXPECT_EQ(work.tutti("tokenizer decode " + kFolder + "bert.json 2 3").out, "[CLS] [SEP]\n");
  EXPECT_EQ(work.tutti("tokenizer decode " + kFolder + "bert.json 2 3 --skip-special").out, "\n");
}

TEST(Tokenizer, SaysWhatIsNoId) {
  const Workplace work;
  const Output word = work.tutti("tokenizer decode byte 104 x5");
  EXPECT_EQ(word.status, 2);
  EXPECT_NE(word.err.find("\"x5\" is no token id; expected whole numbers"), std::string::npos) << word.err;
  EXPECT_EQ(work.tutti("tokenizer decode byte 99999999999").status, 2);
  const Output large = work.tutti("tokenizer decode byte 258");
  EXPECT_EQ(large.status, 2);
  EXPECT_NE(large.err.find("has no token 258; ids are 0 to 257"), std::string::npos) << large.err;
}

}  // namespace
}  // namespace tutti::test
