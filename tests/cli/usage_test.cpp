// What the program says to wrong input. Exit status 2 is wrong usage, 1 an error of the world.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

struct Wrong {
  const char* name;
  const char* arguments;
  int status;
  std::vector<const char*> says;
};

class WrongInput : public testing::TestWithParam<Wrong> {};

TEST_P(WrongInput, IsExplained) {
  Workplace work;
  work.write("corpus.jsonl", synthetic_corpus(1, 50));
  work.write("empty.txt", "");
  work.write("table.parquet", "PAR1\x15\x04\x15");
  work.write("other.jsonl", "{\"id\": 1, \"body\": \"some text\"}\n");
  work.write("broken.toml", "[model]\nname = \"qwen3\"\nflavor = \n");
  work.write("typed.toml", "[training]\nsteps = \"many\"\n");
  work.write("key.toml", "[training]\nstepz = 3\n");
  const Output output = work.tutti(GetParam().arguments);
  EXPECT_EQ(output.status, GetParam().status) << output.err << output.out;
  for (const char* text : GetParam().says)
    EXPECT_NE((output.err + output.out).find(text), std::string::npos) << text << "\n" << output.err;
}

#define QUICKSTART "train " TUTTI_SOURCE_DIR "/configs/quickstart.toml "
INSTANTIATE_TEST_SUITE_P(
    , WrongInput,
    testing::Values(
        Wrong{"MissingConfig", "train nowhere.toml", 2, {"nowhere.toml"}},
        Wrong{"MalformedToml", "train broken.toml", 2, {"broken.toml:3:"}},
        Wrong{"WrongType", "train typed.toml", 2, {"typed.toml:2", "steps", "whole number"}},
        Wrong{"SeveralThings",
              "train typed.toml --optimizer.lr=fast --lr_scheduler.warmup_steps=5000",
              2,
              {"3 things are wrong with the configuration:\n  typed.toml:2:9: training.steps: expected a whole number",
               "\n  --optimizer.lr: expected a number, found 'fast'\n", "\n  data.paths is empty"}},
        Wrong{"UnknownKey", "train key.toml", 2, {"stepz", "did you mean", "steps"}},
        Wrong{"UnknownFlag",
              QUICKSTART "--fersh",
              2,
              {"unknown flag '--fersh'", "did you mean '--fresh'", "tutti train --help"}},
        Wrong{"UnknownFlagOfAVerb", "env --jsn", 2, {"did you mean '--json'"}},
        Wrong{"KeyWithoutEqualsSign", QUICKSTART "--training.steps 5", 2, {"--training.steps", "--section.key=value"}},
        Wrong{"KeyBehindTheEqualsSign", "replay runs/run --steps=training.seed=3", 125, {"--steps"}},
        Wrong{"NoKeyOfTheConfiguration",
              "replay runs/run training.seed=3",
              125,
              {"training.seed=3", "given as --section.key=value"}},
        Wrong{"NoKeyOfABench", "bench layouts run.toml --seed=training.seed", 2, {"unknown flag '--seed'"}},
        Wrong{"WordOfABench",
              "bench layouts run.toml training.seed=3",
              2,
              {"training.seed=3", "given as --section.key=value"}},
        Wrong{"UnknownVerbOfAVerb", "bench opps", 2, {"unknown verb 'opps'", "did you mean 'ops'"}},
        Wrong{"NoVerb", "", 2, {"required", "tutti --help"}}, Wrong{"WordTooMany", "env now", 2, {"now"}},
        Wrong{"UnknownVerb", "trian", 2, {"did you mean 'train'"}},
        Wrong{"MissingData", QUICKSTART "--data nowhere.txt", 2, {"nowhere.txt"}},
        Wrong{"EmptyData", QUICKSTART "--data empty.txt", 2, {"empty.txt"}},
        Wrong{
            "BinaryData", QUICKSTART "--data table.parquet", 2, {"'table.parquet' is a Parquet table", "data.binary"}},
        Wrong{"BinaryDataOfATokenizer",
              "tokenizer train table.parquet",
              2,
              {"'table.parquet' is a Parquet table", "--read-binary"}},
        Wrong{"FieldOfATextThatIsNotThere",
              QUICKSTART "--data other.jsonl",
              2,
              {"other.jsonl:1: has no 'text'; its keys are \"id\", \"body\"", "data.text_field"}},
        Wrong{"ImpossibleSizes", QUICKSTART "--training.global_batch_tokens=100", 2, {"global_batch_tokens"}},
        Wrong{"TooManyRanks",
              QUICKSTART "--data corpus.jsonl -n 9",
              2,
              {"9 data-parallel ranks cannot share 8 virtual shards", "at most 8 ranks"}},
        Wrong{"UnsupportedDegree",
              QUICKSTART "--parallelism.context_parallel_degree=2",
              2,
              {"context_parallel_degree", "version"}},
        Wrong{"UnknownFlavor",
              QUICKSTART "--data corpus.jsonl --model.flavor=quikstart",
              2,
              {"did you mean 'quickstart'"}},
        Wrong{"BatchBeyondAllMemory",
              QUICKSTART "--data corpus.jsonl --training.global_batch_tokens=9223372036854775807",
              2,
              {"global_batch_tokens", "expected 1 to"}},
        Wrong{"ShardBeyondMemory",
              QUICKSTART "--data corpus.jsonl --training.global_batch_tokens=1073741824",
              2,
              {"virtual_shards", "GiB a rank for parameters"}},
        Wrong{"LossBoundTooSmall",
              QUICKSTART "--data nowhere.txt --training.loss_max_bytes=100",
              2,
              {"training.loss_max_bytes = 100 is too small", "or to 0"}},
        Wrong{"LossBoundTooSmallForAPlan",
              "plan " TUTTI_SOURCE_DIR "/configs/quickstart.toml -n 2 --training.loss_max_bytes=100",
              2,
              {"training.loss_max_bytes = 100 is too small"}},
        Wrong{"ProductOfNothing", "bench gemm --m 0", 2, {"not in range"}},
        Wrong{"UnknownBench", "bench ops --only nosuchop", 2, {"nosuchop"}},
        Wrong{"CpuTimeOfThreads",
              "bench ops --cpu-time --threads 2",
              2,
              {"--cpu-time is that of one thread", "use --threads 1"}},
        Wrong{"NoCheckpoint", "checkpoint verify empty.txt", 2, {"no checkpoint"}},
        Wrong{"NoModelFile", "checkpoint ls empty.txt", 2, {"'empty.txt' is no model file"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Program, SaysItsVersion) {
  Workplace work;
  const Output output = work.tutti("--version");
  EXPECT_EQ(output.status, 0);
  EXPECT_EQ(output.out.rfind("tutti 0.", 0), 0u) << output.out;
}

TEST(Program, SaysWhatItHasRead) {
  Workplace work;
  std::filesystem::create_directory(work.folder() / "data");
  work.write("data/a.jsonl", "{\"body\": \"some text\"}\n{\"body\": \"\"}\n");
  work.write("data/b.bin", std::string(4, '\0') + std::string(4000, 'a'));
  work.write("data/c.txt", std::string(4000, 'b'));
  const std::string says = "read 3 files, 3 documents, 8013 bytes, skipped 1 without text\n";
  const Output learned = work.tutti("tokenizer train data --text-field body --read-binary");
  EXPECT_NE(learned.err.find(says), std::string::npos) << learned.err;
  for (int start = 0; start < 2; ++start) {  // the second reads the text's tokens from the cache
    const Output trained =
        work.tutti(QUICKSTART
                   "--data data --data.text_field=body --data.binary=read --data.tokenizer=byte --model.flavor=tiny "
                   "--training.steps=1 --lr_scheduler.warmup_steps=1 "
                   "--training.global_batch_tokens=256 --data.sequence_length=32 --validation.every=0 --fresh");
    EXPECT_EQ(trained.status, 0) << trained.err;
    EXPECT_NE(trained.err.find(says), std::string::npos) << trained.err;
  }
}

TEST(Program, BenchesPrintTheDocumentedKeys) {
  Workplace work;
  const std::vector<std::string> keys = {"op",     "shape",     "dtype", "threads", "mode",
                                         "min_us", "median_us", "gbps",  "gflops"};
  const Output ops = work.tutti("bench ops --only 'gather in rows' --json"),
               gemm = work.tutti("bench gemm --m 40 --n 30 --k 20 --json");
  for (const std::string& key : keys) {
    EXPECT_NE(ops.out.find("\"" + key + "\":"), std::string::npos) << key << "\n" << ops.out << ops.err;
    EXPECT_NE(gemm.out.find("\"" + key + "\":"), std::string::npos) << key << "\n" << gemm.out << gemm.err;
  }
  const Output graphs = work.tutti("bench compile --nodes 10 40 --json");
  for (const std::string key : {"graph", "nodes", "trace_ms", "passes_ms", "us_a_node", "first_ms"})
    EXPECT_NE(graphs.out.find("\"" + key + "\":"), std::string::npos) << key << "\n" << graphs.out << graphs.err;
  EXPECT_EQ(std::count(graphs.out.begin(), graphs.out.end(), '\n'), 10) << graphs.out;
  EXPECT_NE(gemm.out.find("\"peak_gflops\":"), std::string::npos) << gemm.out;
  EXPECT_NE(gemm.out.find("\"verified\":true"), std::string::npos) << gemm.out;
  for (const std::string dtype : {"f32", "i8"}) {
    const Output cold = work.tutti("bench gemm --m 300 --n 250 --k 260 --a-transposed --cold --json --dtype " + dtype);
    EXPECT_NE(cold.out.find("\"shape\":\"300x250x260 A^T cold\""), std::string::npos) << cold.out << cold.err;
    EXPECT_NE(cold.out.find("\"verified\":true"), std::string::npos) << cold.out;
  }
}

TEST(Program, EnvNamesThePartsThatAreOff) {
  Workplace work;
  EXPECT_NE(work.tutti("env").out.find("off"), std::string::npos);
  EXPECT_EQ(work.tutti("env --json").out.front(), '{');
}

TEST(Program, HelpOfTrainListsTheKeysOfTheConfiguration) {
  Workplace work;
  const Output output = work.tutti("train --help");
  EXPECT_EQ(output.status, 0);
  EXPECT_NE(output.out.find("--training.steps"), std::string::npos) << output.out;
}

}  // namespace
}  // namespace tutti::test
