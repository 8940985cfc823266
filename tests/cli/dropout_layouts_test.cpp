// A model with dropout on every number of data-parallel ranks: masks depend on step and virtual shard, so all runs have
// the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

struct Layouts : testing::Test {
  Layouts() { work.write("corpus.jsonl", synthetic_corpus(20, 200)); }
  Output train(const std::string& name, const std::string& more) {
    return work.tutti("train " TUTTI_SOURCE_DIR
                      "/configs/quickstart.toml --quiet --data corpus.jsonl --data.tokenizer=byte --model.flavor=tiny "
                      "--model.dropout=0.2 "
                      "--training.steps=6 --training.global_batch_tokens=512 --data.sequence_length=32 "
                      "--data.validation_fraction=0.05 "
                      "--lr_scheduler.warmup_steps=2 --validation.every=3 --validation.steps=1 "
                      "--validation.sample_tokens=0 --run.name=" +
                      name + " " + more);
  }
  void expect_equal_runs(const std::string& a, const std::string& b) {
    for (const char* key : {"loss_hex", "grad_norm_hex"})
      EXPECT_EQ(work.metric(a, key), work.metric(b, key)) << b << " " << key;
    EXPECT_EQ(work.digest(a), work.digest(b)) << b;
  }
  Workplace work;
};

struct Layout {
  const char *ranks, *schedule;
  bool compiled;
  const char* more = "";
};

struct Dropout : Layouts, testing::WithParamInterface<Layout> {};

TEST_P(Dropout, HasTheBitsOfOneRank) {
  const Layout& layout = GetParam();
  ASSERT_EQ(train("one", "").status, 0) << work.read("err.txt");
  ASSERT_EQ(train("many", std::string("-n ") + layout.ranks + " --parallelism.data_parallel_schedule=" +
                              layout.schedule + (layout.compiled ? " --training.compile=true" : "") + layout.more)
                .status,
            0)
      << work.read("err.txt");
  expect_equal_runs("one", "many");
}

constexpr const char* kOverlaps = " --parallelism.data_parallel_overlap=backward --runtime.progress_thread=true";

std::vector<Layout> layouts() {
  std::vector<Layout> list = {{"1", "once_a_step", true}};
  for (const char* ranks : {"3", "5", "6", "7"}) {
    for (const char* schedule : {"once_a_step", "every_round"}) {
      for (const bool compiled : {false, true}) list.push_back({ranks, schedule, compiled});
    }
  }
  for (const bool compiled : {false, true}) list.push_back({"4", "once_a_step", compiled, kOverlaps});
  list.push_back({"3", "once_a_step", true, kOverlaps});
  return list;
}

INSTANTIATE_TEST_SUITE_P(On, Dropout, testing::ValuesIn(layouts()), [](const auto& param) {
  return fmt::format("{}Ranks_{}_{}", param.param.ranks, param.param.schedule,
                     param.param.compiled ? "compiled" : "eager") +
         (*param.param.more == 0 ? "" : "_overlapped");
});

TEST_F(Layouts, WithDropoutChangeWhenARunResumes) {
  ASSERT_EQ(train("whole", "").status, 0) << work.read("err.txt");
  for (const auto& [before, after] : {std::pair("3", "5 --parallelism.data_parallel_schedule=every_round"),
                                      std::pair("7", "2 --training.compile=true")}) {
    const std::string name = std::string("from_") + before;
    ASSERT_EQ(train(name, std::string("-n ") + before + " --stop-at 3").status, 0) << work.read("err.txt");
    ASSERT_EQ(train(name, std::string("-n ") + after).status, 0) << work.read("err.txt");
    expect_equal_runs("whole", name);
  }
}

TEST_F(Layouts, WithDropoutRecomputeTheSameMasks) {
  ASSERT_EQ(train("kept", "").status, 0) << work.read("err.txt");
  for (const char* compiled : {"false", "true"}) {
    const std::string name = std::string("recomputed_") + compiled;
    ASSERT_EQ(train(name, std::string("-n 2 --activation_checkpoint.mode=full --training.compile=") + compiled).status,
              0)
        << work.read("err.txt");
    expect_equal_runs("kept", name);
  }
}

// The control: without dropout the model learns something else.
TEST_F(Layouts, WithDropoutDifferFromThoseWithout) {
  ASSERT_EQ(train("dropped", "").status, 0) << work.read("err.txt");
  ASSERT_EQ(train("plain", "--model.dropout=0").status, 0) << work.read("err.txt");
  EXPECT_NE(work.metric("dropped", "loss_hex"), work.metric("plain", "loss_hex"));
}

}  // namespace
}  // namespace tutti::test
