// `tutti train --profiler.enable=true` and `tutti trace merge`, as a user runs them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

using Json = nlohmann::json;

constexpr const char* kShort = TUTTI_SOURCE_DIR
    "/configs/quickstart.toml --data corpus.jsonl --data.tokenizer=bpe:300 --training.steps=3 "
    "--training.global_batch_tokens=512 "
    "--data.sequence_length=64 --data.validation_fraction=0.05 --lr_scheduler.warmup_steps=1 --validation.every=0 "
    "--validation.sample_tokens=0 --checkpoint.every=0 ";

struct ProfiledRun : testing::Test {
  ProfiledRun() { work.write("corpus.jsonl", synthetic_corpus(20, 400)); }
  Output train(const std::string& name, const std::string& more) {
    return work.tutti("train " + std::string(kShort) + "--run.name=" + name + " " + more);
  }
  Json trace(const std::string& file) const { return Json::parse(work.read(file)); }
  Workplace work;
};

struct Kinds {
  std::set<std::string> phases, modules, names;
  int64_t kernels = 0, externs = 0, memory = 0, collectives = 0, arrows = 0;
  bool all_have_provenance = true;
};

Kinds look_at(const Json& trace) {
  Kinds seen;
  for (const Json& e : trace.at("traceEvents")) {
    const std::string phase = e.at("ph"), category = e.value("cat", "");
    seen.names.insert(e.at("name").get<std::string>());
    seen.memory += e.at("name") == "[memory]";
    seen.arrows += phase == "s" && category == "collective";
    const bool kernel = category == "kernel", is_extern = category == "extern",
               collective = category == "collective_comm";
    seen.kernels += kernel;
    seen.externs += is_extern;
    seen.collectives += collective;
    if (!kernel && !is_extern && !collective) continue;
    for (const char* key : {"kernel_id", "graph_key", "debug_handle", "ops", "stack", "module_path", "phase", "bytes",
                            "flops", "choice", "specialization"})
      seen.all_have_provenance = seen.all_have_provenance && e.at("args").contains(key);
    seen.phases.insert(e.at("args").at("phase").get<std::string>());
    seen.modules.insert(e.at("args").at("module_path").get<std::string>());
  }
  return seen;
}

TEST_F(ProfiledRun, WritesKernelsMemoryAndModulesAndKeepsEveryBit) {
  const Output with = train("with", "--profiler.enable=true --profiler.first_step=2"), without = train("without", "");
  ASSERT_EQ(with.status, 0) << with.err;
  ASSERT_EQ(without.status, 0) << without.err;
  for (const char* key : {"loss_hex", "grad_norm_hex"})
    EXPECT_EQ(work.metric("with", key), work.metric("without", key));
  EXPECT_EQ(work.digest("with"), work.digest("without"));
  EXPECT_FALSE(std::filesystem::exists(work.folder() / "runs/without/trace"));

  const Json json = trace("runs/with/trace/rank-0.json");
  EXPECT_EQ(json.at("tutti").at("droppedEvents"), 0);
  const Kinds seen = look_at(json);
  EXPECT_GT(seen.kernels, 100);
  EXPECT_GT(seen.externs, 50);
  EXPECT_GT(seen.memory, 100);
  EXPECT_TRUE(seen.all_have_provenance);
  EXPECT_EQ(seen.phases, (std::set<std::string>{"bwd", "fwd", "opt"}));
  EXPECT_TRUE(seen.modules.contains("model.layers.0.self_attn"));
  EXPECT_TRUE(seen.modules.contains("model.layers.1.mlp"));
  EXPECT_TRUE(seen.modules.contains("model.layers.0.mlp.up_proj.weight"));
  EXPECT_TRUE(seen.names.contains("step 2"));
  EXPECT_FALSE(seen.names.contains("step 1"));
  EXPECT_FALSE(seen.names.contains("step 3"));
}

TEST_F(ProfiledRun, AFullBufferIsCountedAndSaid) {
  const Output output =
      train("small", "--profiler.enable=true --profiler.first_step=1 --profiler.events_per_thread=50");
  ASSERT_EQ(output.status, 0) << output.err;
  EXPECT_NE(output.err.find("more were dropped; raise profiler.events_per_thread"), std::string::npos) << output.err;
  EXPECT_GT(trace("runs/small/trace/rank-0.json").at("tutti").at("droppedEvents"), 0);
}

TEST_F(ProfiledRun, ATraceThatCannotBeWrittenDoesNotEndTheRun) {
  std::filesystem::create_directories(work.folder() / "runs/blocked");
  work.write("runs/blocked/trace", "a file where the folder should be");
  const Output output = train("blocked", "--profiler.enable=true --profiler.first_step=1");
  EXPECT_EQ(output.status, 0) << output.err;
  EXPECT_NE(output.err.find("the trace was not written"), std::string::npos) << output.err;
}

TEST_F(ProfiledRun, TwoRanksWriteAFileEachAndTheyMerge) {
  const Output output = train("two", "-n 2 --profiler.enable=true --profiler.first_step=2 --profiler.steps=2");
  ASSERT_EQ(output.status, 0) << output.err;
  ASSERT_EQ(train("one", "").status, 0);
  EXPECT_EQ(work.metric("two", "loss_hex"), work.metric("one", "loss_hex"));
  EXPECT_GT(look_at(trace("runs/two/trace/rank-1.json")).collectives, 3);

  const Output merge =
      work.tutti("trace merge merged.json runs/two/trace/rank-0.json runs/two/trace/rank-1.json --json");
  ASSERT_EQ(merge.status, 0) << merge.err;
  const Json report = Json::parse(merge.out);
  EXPECT_EQ(report.at("ranks").at(1).at("aligned_by"), "same clock");
  EXPECT_GT(report.at("collectives"), 3);
  const Kinds seen = look_at(trace("merged.json"));
  EXPECT_EQ(seen.arrows, report.at("arrows").get<int64_t>());
  EXPECT_TRUE(seen.names.contains("step 2") && seen.names.contains("step 3"));

  const Output people = work.tutti("trace merge merged.json runs/two/trace/rank-0.json runs/two/trace/rank-1.json");
  EXPECT_NE(people.out.find("rank 1  runs/two/trace/rank-1.json  clock"), std::string::npos) << people.out;
  EXPECT_NE(people.out.find("us by same clock"), std::string::npos) << people.out;
}

TEST_F(ProfiledRun, WrongTracesAreNamed) {
  work.write("torn.json", "{\"schemaVersion\": 1,");
  const Output torn = work.tutti("trace merge merged.json torn.json"),
               none = work.tutti("trace merge merged.json nowhere.json");
  EXPECT_EQ(torn.status, 2);
  EXPECT_NE(torn.err.find("torn.json:1:21: byte 21: not JSON: "), std::string::npos) << torn.err;
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("nowhere.json: cannot be read: No such file"), std::string::npos) << none.err;
  EXPECT_FALSE(std::filesystem::exists(work.folder() / "merged.json"));
}

}  // namespace
}  // namespace tutti::test
