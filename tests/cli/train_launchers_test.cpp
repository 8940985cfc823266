// The trainer gives the same bits whoever starts its ranks, and refuses to have them started twice.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

constexpr const char* kTrain = " train " TUTTI_SOURCE_DIR
                               "/configs/quickstart.toml --quiet --data corpus.jsonl --data.tokenizer=bpe:300 "
                               "--training.steps=4 --training.global_batch_tokens=512 "
                               "--data.sequence_length=64 --data.validation_fraction=0.05 "
                               "--lr_scheduler.warmup_steps=1 --validation.every=10 --validation.steps=1 "
                               "--validation.sample_tokens=8 --checkpoint.every=4 --run.name=";

const std::string kProgram = TUTTI_BINARY_DIR "/tutti";

struct TrainLaunchers : testing::Test {
  TrainLaunchers() { work.write("corpus.jsonl", synthetic_corpus(20, 200)); }
  std::string train(const std::string& name) const { return kTrain + name + " "; }
  Workplace work;
};

// "" where this machine has none of that name.
std::string mpirun(const std::string& name, const std::string& flags) {
  return std::system(("command -v " + name + " > /dev/null").c_str()) == 0 ? name + " " + flags + " -n 2 " : "";
}

TEST_F(TrainLaunchers, EachGivesTheSameBits) {
  ASSERT_EQ(work.tutti(train("alone").substr(1)).status, 0) << work.read("err.txt");
  ASSERT_EQ(work.tutti((train("ours") + "-n 2").substr(1)).status, 0) << work.read("err.txt");
  ASSERT_EQ(work.tutti("launch -n 2 --" + (" " + kProgram) + train("launched")).status, 0) << work.read("err.txt");
  std::vector<std::string> runs = {"ours", "launched"};
  // Root must say that it means it; there are more ranks than cores on a small machine.
  const std::string open_mpi = mpirun("mpirun.openmpi",
                                      std::string("--oversubscribe") + (geteuid() == 0 ? " --allow-run-as-root" : "")),
                    mpich = mpirun("mpiexec.mpich", "");
  for (const auto& [name, launcher] : {std::pair{"openmpi", open_mpi}, std::pair{"mpich", mpich}}) {
    if (launcher.empty()) continue;
    ASSERT_EQ(work.tutti("", launcher + kProgram + train(name) + " > out.txt 2> err.txt; exit $?;").status, 0)
        << work.read("err.txt");
    runs.push_back(name);
  }
  ASSERT_EQ(work.metric("alone", "loss_hex").size(), 4u);
  for (const std::string& run : runs) {
    for (const char* key : {"loss_hex", "grad_norm_hex"})
      EXPECT_EQ(work.metric(run, key), work.metric("alone", key)) << run;
    EXPECT_EQ(work.digest(run), work.digest("alone")) << run;
  }
}

TEST_F(TrainLaunchers, ATransportWithoutPeersTrainsNothing) {
  const Output output = work.tutti((train("apart") + "-n 2").substr(1), "TUTTI_TRANSPORT=fake");
  EXPECT_EQ(output.status, 2);
  EXPECT_NE(output.err.find("transport fake moves no data"), std::string::npos) << output.err;
}

TEST_F(TrainLaunchers, RanksAreStartedByOneOfThem) {
  const Output launched = work.tutti("launch -n 2 --" + (" " + kProgram) + train("twice") + "-n 2");
  EXPECT_EQ(launched.status, 2);
  EXPECT_NE(launched.err.find("Tutti has started 2 ranks already; leave out -n"), std::string::npos) << launched.err;
  const Output torchrun = work.tutti((train("twice") + "-n 2").substr(1), "export RANK=0 WORLD_SIZE=1;");
  EXPECT_EQ(torchrun.status, 2);
  EXPECT_NE(torchrun.err.find("torchrun has started 1 rank already; leave out -n"), std::string::npos) << torchrun.err;
}

}  // namespace
}  // namespace tutti::test
