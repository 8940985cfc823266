// The verbs that read JSON from outside, with files that nobody should have written: an error in one line that names
// the file, status 2 (125 of diff and replay), and no other end.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTrain = "train " TUTTI_SOURCE_DIR
                               "/configs/quickstart.toml --quiet --data corpus.jsonl --data.tokenizer=bpe:300 "
                               "--training.steps=2 --training.global_batch_tokens=512 "
                               "--data.sequence_length=64 --data.validation_fraction=0.05 "
                               "--lr_scheduler.warmup_steps=1 --validation.every=0 --run.name=run ";

struct Reading {
  const char* name;
  const char* file;         // that is replaced
  const char* arguments;    // of the verb that reads it
  bool has_length = false;  // its JSON stands behind its length
  int status = 2;
};

constexpr int kCannotTell = 125;  // diff and replay, for `git bisect run`

const Reading kReadings[] = {
    {"TrainWithATokenizer", "hostile.json", "--data.tokenizer=hostile.json"},
    {"TrainOnDocuments", "hostile.jsonl", "--data hostile.jsonl --data.tokenizer=byte --run.name=other"},
    {"TrainOnFromAState", "runs/run/checkpoint/step-2/state.json", ""},
    {"TrainOnFromMetrics", "runs/run/metrics.jsonl", ""},
    {"TokenizerEncode", "hostile.json", "tokenizer encode hostile.json text"},
    {"TokenizerDecode", "hostile.json", "tokenizer decode hostile.json 1"},
    {"TokenizerTrain", "hostile.jsonl", "tokenizer train hostile.jsonl"},
    {"Generate", "runs/run/tokenizer.json", "generate runs/run"},
    {"GenerateFromWeights", "runs/run/checkpoint/step-2/model.safetensors", "generate runs/run", true},
    {"TraceWhy", "flight_0", "trace why flight_0"},
    {"TraceMerge", "rank-0.json", "trace merge out.json rank-0.json"},
    {"CheckpointVerify", "runs/run/checkpoint/step-2/state.json", "checkpoint verify runs/run"},
    {"CheckpointVerifyOfAnIndex", "sharded/model.safetensors.index.json", "checkpoint verify sharded"},
    {"CheckpointReshard", "runs/run/checkpoint/step-2/state.json", "checkpoint reshard runs/run other --files 2"},
    {"CheckpointReshardOfWeights", "runs/run/checkpoint/step-2/model.safetensors",
     "checkpoint reshard runs/run other --files 2", true},
    {"CheckpointLs", "runs/run/checkpoint/step-2/model.safetensors", "checkpoint ls runs/run", true},
    {"CheckpointLsWithDigests", "runs/run/checkpoint/step-2/model.safetensors", "checkpoint ls runs/run --digest",
     true},
    {"DiffOfMetrics", "runs/run/metrics.jsonl", "diff runs/run runs/run", false, kCannotTell},
    {"DiffOfStates", "runs/run/checkpoint/step-2/state.json",
     "diff runs/run/checkpoint/step-2 runs/run/checkpoint/step-2", false, kCannotTell},
    {"DiffOfWeights", "runs/run/checkpoint/step-2/model.safetensors", "diff runs/run runs/run", true, kCannotTell},
    {"DiffOfFiles", "other.jsonl", "diff runs/run/metrics.jsonl other.jsonl", false, kCannotTell},
    {"ReportOfMetrics", "runs/run/metrics.jsonl", "report runs/run"},
    {"ReplayOfMetrics", "runs/run/metrics.jsonl", "replay runs/run --from 0", false, kCannotTell},
    {"ReplayOfAState", "runs/run/checkpoint/step-2/state.json", "replay runs/run --from 0", false, kCannotTell}};

constexpr size_t kDeep = 100'000;

struct ForeignJson : testing::Test {
  ForeignJson() { work.write("corpus.jsonl", synthetic_corpus(20, 60)); }

  static std::string command_of(const Reading& reading) {
    const std::string arguments = reading.arguments;
    return arguments.empty() || arguments.starts_with("--") ? kTrain + arguments : arguments;
  }
  void expect_refused(const Reading& reading, const std::string& what) {
    const Output output = work.tutti(command_of(reading));
    EXPECT_EQ(output.status, reading.status) << reading.name << ", " << what << ": " << output.err;
    EXPECT_NE(output.err.find("tutti: error: "), std::string::npos)
        << reading.name << ", " << what << ": " << output.err;
    EXPECT_NE(output.err.find(fs::path(reading.file).filename().string()), std::string::npos)
        << reading.name << ", " << what << ": " << output.err;
  }
  void put(const Reading& reading, const std::string& text, const std::string& inside = "") {
    const uint64_t length = text.size();
    work.write(reading.file + inside,
               reading.has_length ? std::string(reinterpret_cast<const char*>(&length), 8) + text : text + "\n");
  }

  Workplace work;
};

TEST_F(ForeignJson, IsRefusedByEveryVerbThatReadsIt) {
  ASSERT_EQ(work.tutti(kTrain).status, 0) << work.read("err.txt");
  ASSERT_EQ(work.tutti("checkpoint reshard runs/run sharded --files 2").status, 0) << work.read("err.txt");
  const std::string deep = std::string(kDeep, '[') + std::string(kDeep, ']');
  for (const Reading& reading : kReadings) {
    const std::string good = work.read(reading.file);
    for (const auto& [what, text] :
         {std::pair<const char*, std::string>{"brackets", std::string(kDeep, '[')},
          {"closed brackets", deep},
          {"brackets in a value", "{\"added_tokens\": " + deep + ", \"model\": " + deep + ", \"text\": " + deep + "}"},
          {"1e999", "{\"version\": 1e999, \"text\": 1e999}"},
          {"cut short", "{\"version\": \"2.1"},
          {"no UTF-8", "{\"version\": \"\xff\"}"},
          {"twice", "{\"version\": \"2.1\", \"version\": \"2.1\"}"},
          {"another type", "[1, 2]"},
          {"a number", "7"}}) {
      put(reading, text);
      expect_refused(reading, what);
    }
    const fs::path path = work.folder() / reading.file;
    fs::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    alarm(300);  // the program must not wait for somebody to write
    expect_refused(reading, "a pipe");
    alarm(0);
    fs::remove(path);
    fs::create_directory(path);
    // Where a folder is legal, what lies in it is read.
    for (const std::string& inside : {path.filename().string(), std::string("tokenizer.json")})
      put(reading, "[", "/" + inside);
    expect_refused(reading, "a folder");
    fs::remove_all(path);
    if (!good.empty()) work.write(reading.file, good);
  }
}

}  // namespace
}  // namespace tutti::test
