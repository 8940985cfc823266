// `tutti package` as a user runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cli/support/program.h"
#include "tests/cli/support/published.h"
#include "tests/cli/support/tiny_run.h"
#include "tests/package/support/packaged_cases.h"

namespace tutti::test {
namespace {

using package_test::Block;
using package_test::for_this_processor;
using package_test::values;

struct PackageCommand : ::testing::Test {
  PackageCommand() {
    package((work.folder() / "block").string(), Block(),
            for_this_processor("block", {{.name = "tokens", .dims = {{0, 1}}, .least = 2, .most = 5}}),
            values(1, {2, 4, 16}));
  }
  void expect_out(const std::string& arguments, std::initializer_list<const char*> texts) {
    const Output output = work.tutti("package " + arguments);
    EXPECT_EQ(output.status, 0) << output.err;
    for (const char* text : texts)
      EXPECT_NE(output.out.find(text), std::string::npos) << text << " is not in\n" << output.out;
  }
  void expect_error(const std::string& arguments, int status, const char* text) {
    const Output output = work.tutti("package " + arguments);
    EXPECT_EQ(output.status, status) << output.out;
    EXPECT_NE(output.err.find(text), std::string::npos) << text << " is not in\n" << output.err;
  }
  Workplace work;
};

TEST_F(PackageCommand, InspectTellsWhatThePackageHolds) {
  expect_out("inspect block",
             {"block: made by Tutti", "argument 0: f32 [2, tokens, 16]", "tokens: 2 to 5 in steps of 1",
              "result 0: f32", "calls sdpa, schema ", "AVX2, FMA, BMI2", "section constants: "});
  expect_out("inspect block --plans", {"call sdpa"});
  expect_out("inspect block --json",
             {"\"function\":\"block\"", "\"combinations\":4", "\"inputs\":[\"f32 [2, tokens, 16]\"]"});
}

TEST_F(PackageCommand, VerifyChecksBytesAndPlans) {
  expect_out("verify block", {"block: whole, plans of 4 combinations of sizes"});
  expect_out("verify block --json", {"{\"path\":\"block\",\"combinations\":4}"});
  std::string bytes = work.read("block");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  work.write("damaged", bytes);
  expect_error("verify damaged", 1, "are damaged; copy the file again");
  expect_error("verify nowhere", 1, "cannot open the package nowhere");
}

TEST_F(PackageCommand, RunCallsTheFunction) {
  expect_out("run block", {"f32 [2, 2, 16] ", "open to first result"});
  expect_out("run block --size tokens=5 --repeats 3 --json", {"\"sizes\":[2,5,16]", "\"first_result_ms\":"});
  EXPECT_EQ(work.tutti("package run block --json --size tokens=4").out.substr(0, 2), "{\"");
  expect_error("run block --size tokens=6", 2, "argument 0, dim 1 is 6, and 'tokens' is from 2 to 5");
  expect_error("run block --size length=2", 2, "--size length=2: expected NAME=NUMBER");
  expect_error("run block --size tokens=two", 2, "--size tokens=two: expected NAME=NUMBER");
}

TEST(PackagedModel, WritesTheTextsOfTheModelWithoutItsWeights) {
  const Workplace work;
  write_tiny_run(work);
  write_published_decoder(work);
  const Output made = work.tutti("package published small --context 100");
  ASSERT_EQ(made.status, 0) << made.err;
  for (const char* text :
       {"combinations of sizes proved", "constants and state: ", " before equal ones were put togeth"})
    EXPECT_NE(made.out.find(text), std::string::npos) << made.out;
  for (const auto& entry : std::filesystem::directory_iterator(work.folder()))
    EXPECT_EQ(entry.path().filename().string().find("small."), std::string::npos) << entry.path();
  for (const char* flags : {"--temperature 0", "--temperature 1.2 --seed 4", "--temperature 0.8 --top-k 5 --seed 9"}) {
    for (const char* prompt : {"a", "the old river runs to the sea, and the sea is old, and the sea runs"}) {
      const std::string rest = fmt::format(" --prompt '{}' --max-tokens 12 {}", prompt, flags);
      const Output live = work.tutti("generate published" + rest), packaged = work.tutti("generate small" + rest);
      EXPECT_EQ(packaged.status, 0) << packaged.err;
      EXPECT_EQ(packaged.out, live.out) << rest;
    }
  }
  const auto refusal = [&](const std::string& arguments, int status = 2) {
    const Output output = work.tutti(arguments);
    EXPECT_EQ(output.status, status) << output.out;
    return output.err;
  };
  for (const char* verb : {"eval small --data text.txt", "package small other", "convert small other",
                           "checkpoint ls small", "checkpoint export small other.safetensors"})
    EXPECT_NE(refusal(verb).find("small is a packaged model, whose weights are in small/decode.tutti"),
              std::string::npos)
        << refusal(verb);
  EXPECT_NE(refusal("diff small small", 125).find("small is a packaged model"), std::string::npos);
  EXPECT_NE(refusal("serve small --port 0")
                .find("serve: small is a packaged model, which answers one request at a "
                      "time, and not 16; add --max-requests 1"),
            std::string::npos)
      << refusal("serve small --port 0");
  EXPECT_NE(refusal("generate small --prompt a --compile").find("small is a packaged model"), std::string::npos);
  EXPECT_NE(refusal("package published small").find("small exists already"), std::string::npos);
  EXPECT_NE(refusal("package nowhere other").find("nowhere is no published model"), std::string::npos);
  EXPECT_NE(refusal("package").find("give a model and a new folder"), std::string::npos);
}

// Pages are of 16 tokens, and tables of 8 pages: 150 tokens need a second table, which they do not fill.
TEST(PackagedModel, TextsFillAContextThatIsNoNumberOfWholeTables) {
  const Workplace work;
  write_tiny_run(work);
  write_published_decoder(work);
  // What a killed process left is no obstacle, and stays for its owner to look at.
  std::filesystem::create_directory(work.folder() / "small.unfinished.1");
  work.write("small.unfinished.1/decode.tutti.unproved", "half a package");
  const Output made = work.tutti("package published small --context 150");
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(work.read("small.unfinished.1/decode.tutti.unproved"), "half a package");
  for (const int tokens : {100, 140, 180}) {
    const std::string rest =
        fmt::format(" --prompt 'the old river runs' --max-tokens {} --temperature 0.9 --seed 5 --context 150", tokens);
    const Output live = work.tutti("generate published" + rest), packaged = work.tutti("generate small" + rest);
    EXPECT_EQ(packaged.status, live.status) << packaged.err << live.err;
    EXPECT_EQ(packaged.out, live.out) << rest;
  }
}

TEST(PackagedModel, AFolderWhoseDescriptionIsOfAnotherVocabularyIsRefused) {
  const Workplace work;
  write_tiny_run(work);
  write_published_decoder(work);
  const Output made = work.tutti("package published small --context 64");
  ASSERT_EQ(made.status, 0) << made.err;
  std::string config = work.read("small/config.json");
  const std::string key = "\"vocab_size\":";
  const size_t at = config.find(key);
  ASSERT_NE(at, std::string::npos) << config;
  const int64_t vocab = std::stoll(config.substr(at + key.size()));
  const size_t number = config.find(std::to_string(vocab), at);
  config.replace(number, std::to_string(vocab).size(), std::to_string(vocab + 3));
  work.write("small/config.json", config);
  const Output refused = work.tutti("generate small --prompt a");
  EXPECT_EQ(refused.status, 2) << refused.out;
  EXPECT_NE(refused.err.find(fmt::format("the package in small gives logits of {} tokens, and config.json beside it "
                                         "describes {}; they are of two models",
                                         vocab, vocab + 3)),
            std::string::npos)
      << refused.err;
}

}  // namespace
}  // namespace tutti::test
