// The job key is printed and written by nothing: no verb, no log, no dump, no error, no file of a run.
#include <gtest/gtest.h>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKey = "5ecret-0f-this-j0b-and-no-other";

struct Secrets : testing::Test {
  Secrets() {
    work.write("corpus.jsonl", synthetic_corpus(20, 60));
    work.write("key", kKey);
    fs::permissions(work.folder() / "key", fs::perms::owner_read);
  }
  // Everything that a call prints or leaves, the file that holds the key aside.
  void expect_kept(const std::string& arguments, int status) {
    for (const std::string& shell : {std::string("TUTTI_JOB_KEY=") + kKey, std::string("TUTTI_JOB_KEY_FILE=key")}) {
      const Output output = work.tutti(arguments, "TUTTI_FLIGHT_RECORDER_DUMP=flight_ " + shell);
      EXPECT_EQ(output.status, status) << arguments << "\n" << output.err;
      for (const auto& entry : fs::recursive_directory_iterator(work.folder())) {
        if (!entry.is_regular_file() || entry.path().filename() == "key") continue;
        EXPECT_EQ(work.read(entry.path().lexically_relative(work.folder()).string()).find(kKey), std::string::npos)
            << arguments << ": " << entry.path();
      }
    }
  }
  Workplace work;
};

TEST_F(Secrets, EnvSaysThatTheKeyIsSetAndNotWhatItIs) {
  expect_kept("env", 0);
  expect_kept("env --json", 0);
  const std::string text = work.tutti("env", std::string("TUTTI_JOB_KEY=") + kKey).out, none = work.tutti("env").out;
  EXPECT_NE(text.find("TUTTI_JOB_KEY            (set, not shown)"), std::string::npos) << text;
  EXPECT_NE(none.find("TUTTI_JOB_KEY            (unset)"), std::string::npos) << none;
  EXPECT_NE(work.tutti("env", "TUTTI_JOB_KEY_FILE=key").out.find("TUTTI_JOB_KEY_FILE       key"), std::string::npos);
}

TEST_F(Secrets, RunsAndTheirFailuresKeepIt) {
  const std::string train = "train " TUTTI_SOURCE_DIR
                            "/configs/quickstart.toml --data.tokenizer=byte --training.steps=1 "
                            "--training.global_batch_tokens=512 --profiler.enable=true --profiler.first_step=1 "
                            "--data.sequence_length=64 --data.validation_fraction=0.05 --lr_scheduler.warmup_steps=0 "
                            "--validation.every=0 --checkpoint.every=0 -n 2 --data ";
  expect_kept(train + "corpus.jsonl --fresh", 0);
  expect_kept(train + "nowhere", 2);
  expect_kept("launch -n 2 --log-dir logs -- sh -c 'exit 3'", 3);
  expect_kept("launch -n 2 -- sh -c 'kill -SEGV $$'", 139);
  // Nobody serves this port.
  expect_kept("launch -n 1 --nnodes 2 --node-rank 1 --rdzv-endpoint 127.0.0.1:1 --rdzv-timeout 1 -- true", 1);
}

TEST_F(Secrets, AKeyThatIsWrongIsDescribedAndNotQuoted) {
  const Output output = work.tutti("launch -n 1 --nnodes 2 --node-rank 1 --rdzv-endpoint 127.0.0.1:1 -- true",
                                   "TUTTI_JOB_KEY=tooshort5ecret");
  EXPECT_EQ(output.status, 2);
  EXPECT_NE(output.err.find("the job key has 14 bytes"), std::string::npos) << output.err;
  EXPECT_EQ(output.err.find("tooshort"), std::string::npos) << output.err;
}

}  // namespace
}  // namespace tutti::test
