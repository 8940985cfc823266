// The program of a build with TUTTI_DISTRIBUTED=OFF: it trains with one rank, to the same bits, and refuses several.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

constexpr const char* kAdvice = "this build has TUTTI_DISTRIBUTED=OFF; configure with -DTUTTI_DISTRIBUTED=ON";

// As tests/cli/train_test.cpp, whose golden file it is.
constexpr const char* kQuickstart = "train " TUTTI_SOURCE_DIR
                                    "/configs/quickstart.toml --quiet --data corpus.jsonl --data.tokenizer=bpe:300 "
                                    "--training.steps=20 --training.global_batch_tokens=512 "
                                    "--data.sequence_length=64 --data.validation_fraction=0.05 "
                                    "--lr_scheduler.warmup_steps=5 --validation.every=10 --validation.steps=1 "
                                    "--validation.sample_tokens=8 --checkpoint.every=10 --run.name=one ";

TEST(SingleProgram, OneRankTrainsToTheGoldenLosses) {
  Workplace work;
  work.write("corpus.jsonl", synthetic_corpus(20, 400));
  ASSERT_EQ(work.tutti(kQuickstart).status, 0) << work.read("err.txt");
  std::vector<std::string> golden;
  std::ifstream file(TUTTI_SOURCE_DIR "/tests/golden/quickstart.loss");
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') golden.push_back(line);
  }
  EXPECT_EQ(work.metric("one", "loss_hex"), golden);
}

TEST(SingleProgram, SeveralRanksAreRefused) {
  Workplace work;
  work.write("corpus.jsonl", synthetic_corpus(20, 40));
  const Output output = work.tutti(std::string(kQuickstart) + "-n 2");
  EXPECT_EQ(output.status, 2);
  EXPECT_NE(output.err.find(std::string("what starts 2 ranks as processes is left out: ") + kAdvice), std::string::npos)
      << output.err;
}

TEST(SingleProgram, ARankOfALauncherIsRefused) {
  Workplace work;
  work.write("corpus.jsonl", synthetic_corpus(20, 40));
  const Output output = work.tutti(kQuickstart, "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2");
  EXPECT_EQ(output.status, 2);
  EXPECT_NE(output.err.find(kAdvice), std::string::npos) << output.err;
}

TEST(SingleProgram, EnvSaysWhatIsLost) {
  Workplace work;
  const std::string text = work.tutti("env").out;
  const size_t begin = text.find("distributed");
  ASSERT_NE(begin, std::string::npos) << text;
  const std::string line =
      text.substr(text.rfind('\n', begin) + 1, text.find('\n', begin) - text.rfind('\n', begin) - 1);
  for (const char* part : {"  off ", "ranks as processes", "other hosts", "GPU engines", kAdvice})
    EXPECT_NE(line.find(part), std::string::npos) << line;
}

}  // namespace
}  // namespace tutti::test
