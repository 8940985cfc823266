// A run that loses ranks ends with the bits of the run that loses nobody. 100 random losses of each layout: ctest -L
// nightly.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "tests/cli/support/losses.h"
#include "tests/cli/support/program.h"
#include "tests/cli/support/tiny_run.h"
#include "tutti/train/checkpoint/checkpoint_folder.h"
#include "tutti/train/report/metrics.h"

namespace tutti::test {
namespace {

const std::string kSurviving = "train run.toml --run.name=run -n 4 --training.survive_rank_loss=true";
const std::string kShards =
    " --parallelism.data_parallel_replicate_degree=1 --parallelism.data_parallel_shard_degree=-1";

struct RankLoss : testing::Test {
  // What the run without losses leaves, of the configuration with these flags.
  static const std::string& expected(const std::string& flags = "") {
    static std::map<std::string, std::string> known;
    std::string& outcome = known[flags];
    if (!outcome.empty()) return outcome;
    const Workplace work;
    write_tiny_run(work);
    const Output whole = work.tutti("train run.toml --run.name=run -n 1" + flags);
    EXPECT_EQ(whole.status, 0) << whole.err;
    return outcome = outcome_of(work);
  }
  static std::vector<train::LostRank> lost_in(const Workplace& work) {
    std::vector<train::LostRank> lost;
    for (const train::StepRecord& record : train::read_metrics(work.folder() / "runs/run/metrics.jsonl"))
      lost.insert(lost.end(), record.lost_ranks.begin(), record.lost_ranks.end());
    return lost;
  }
  static void expect_survived(const std::string& planted, const std::string& flags, size_t losses,
                              const std::string& numeric_flags = "") {
    const Workplace work;
    write_tiny_run(work);
    const Output run = work.tutti(kSurviving + flags + numeric_flags, "TUTTI_LOSE_RANK=" + planted);
    EXPECT_EQ(run.status, 0) << planted << ": " << run.err;
    EXPECT_EQ(outcome_of(work), expected(numeric_flags)) << planted << ": " << run.err;
    EXPECT_EQ(lost_in(work).size(), losses) << planted << ": " << run.err;
  }
};

TEST_F(RankLoss, AtEachPointOfAStepChangesNothing) {
  for (const std::string& layout : {std::string(), kShards}) {
    for (const char* planted : {"0:computed:1", "1:computed:3", "2:prepared:3", "0:prepared:4", "1:block:3",
                                "0:block:6", "3:applied:4", "0:validating:3", "0:logged:3", "0:saving:3", "2:saving:6"})
      expect_survived(planted, layout, 1);
  }
}

TEST_F(RankLoss, OfTheRankThatSamplesChangesNothing) {
  for (const std::string& layout : {std::string(), kShards}) expect_survived("0:sampling:6", layout, 1);
}

// The log is complete by then, so that it does not tell of it.
TEST_F(RankLoss, OfARankThatHasNothingLeftToDoChangesNothing) {
  for (const char* planted : {"0:done:6", "3:done:6", "1:done:6,2:done:6"}) expect_survived(planted, "", 0);
}

TEST_F(RankLoss, OfTwoAtOnceAndOfAllButOneChangesNothing) {
  for (const std::string& layout : {std::string(), kShards}) {
    expect_survived("0:block:3,2:block:3", layout, 2);
    expect_survived("1:prepared:2,3:computed:2", layout, 2);
    expect_survived("0:prepared:2,1:applied:3,2:block:5", layout, 3);
  }
}

TEST_F(RankLoss, ChangesNothingCompiledInBf16AndEveryRound) {
  for (const std::string& layout : {std::string(), kShards}) {
    expect_survived("1:block:3", layout + " --training.compile=true", 1);
    expect_survived("0:applied:3", layout + " --parallelism.data_parallel_schedule=every_round", 1);
    expect_survived("2:prepared:3", layout + " --parallelism.data_parallel_overlap=backward", 1);
    expect_survived("1:block:3,2:applied:4", layout, 2, " --training.mixed_precision_param=bfloat16");
    expect_survived("1:casting:2,0:casting:5", layout, 2, " --training.mixed_precision_param=bfloat16");
  }
  expect_survived("1:block:3", "", 1, " --optimizer.name=sgd --optimizer.momentum=0.9");
  expect_survived("3:prepared:2",
                  " --parallelism.data_parallel_replicate_degree=2 --parallelism.data_parallel_shard_degree=2", 1);
}

TEST_F(RankLoss, AReplacementJoinsAtTheNextStep) {
  for (const std::string& layout : {std::string(), kShards}) {
    const Workplace work;
    write_tiny_run(work);
    // The step in which nothing happens is long enough for a process to start.
    const Output run = work.tutti(kSurviving + layout +
                                      " --max-restarts=2 --training.steps=150 --checkpoint.every=0 "
                                      "--validation.every=0 --validation.sample_tokens=0 --lr_scheduler.warmup_steps=2",
                                  "TUTTI_LOSE_RANK=0:block:3,2:prepared:20");
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_NE(run.err.find("starting rank 0 again: restart 1 of 2"), std::string::npos) << run.err;
    EXPECT_NE(run.err.find("going on with 4 ranks"), std::string::npos) << run.err;
    const Workplace one;
    write_tiny_run(one);
    EXPECT_EQ(one.tutti("train run.toml --run.name=run -n 1 --training.steps=150 --checkpoint.every=0 "
                        "--validation.every=0 --validation.sample_tokens=0 --lr_scheduler.warmup_steps=2")
                  .status,
              0);
    EXPECT_EQ(outcome_of(work), outcome_of(one));
  }
}

TEST_F(RankLoss, SaysWhoWasLostAndWhatItCost) {
  const Workplace work;
  write_tiny_run(work);
  const Output run = work.tutti(kSurviving, "TUTTI_LOSE_RANK=2:prepared:4");
  EXPECT_NE(run.err.find("rank 2 (pid "), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("was killed by SIGKILL; 3 ranks go on without it"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("was lost in step 4: 3 ranks go on from step "), std::string::npos) << run.err;
  const std::vector<train::LostRank> lost = lost_in(work);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].rank, 2);
  EXPECT_GT(lost[0].pid, 0);
  EXPECT_FALSE(lost[0].host.empty());
  EXPECT_EQ(lost[0].step, 4);
  EXPECT_GT(lost[0].seconds_lost, 0.0);
  EXPECT_LT(lost[0].seconds_lost, 60.0);
}

// The state is in the launcher's memory: it outlives all ranks while a replacement starts.
TEST_F(RankLoss, OfAllRanksIsSurvivedByAReplacement) {
  for (const std::string& layout : {std::string(), kShards}) {
    const Workplace work;
    write_tiny_run(work);
    const Output run = work.tutti(kSurviving + layout + " --max-restarts=4",
                                  "TUTTI_LOSE_RANK=0:prepared:4,1:prepared:4,2:prepared:4,3:prepared:4");
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(outcome_of(work), expected()) << run.err;
    EXPECT_EQ(run.err.find("resuming"), std::string::npos) << run.err;
  }
}

TEST_F(RankLoss, IsTheEndOfTheOthersWithoutSurvivalAndRestartsGoOnFromTheCheckpoint) {
  const Workplace work;
  write_tiny_run(work);
  const std::string flags = " --training.steps=80 --checkpoint.every=40 --validation.every=0";
  const int pid = work.start("train run.toml --run.name=run -n 2 --max-restarts=1 --fresh" + flags);
  while (work.read("runs/run/metrics.jsonl").find("\"step\":45,") == std::string::npos) usleep(500);
  const std::vector<int> ranks = ranks_of(pid);
  ASSERT_EQ(ranks.size(), 2u) << work.read("err.txt");
  kill(ranks.back(), SIGKILL);
  EXPECT_EQ(Workplace::wait(pid), 0) << work.read("err.txt");
  EXPECT_NE(work.read("err.txt").find("starting all ranks again: restart 1 of 1"), std::string::npos)
      << work.read("err.txt");
  EXPECT_NE(work.read("err.txt").find("--fresh was done when this job started first; runs/run goes on"),
            std::string::npos)
      << work.read("err.txt");
  EXPECT_EQ(outcome_of(work), expected(flags));
}

TEST_F(RankLoss, RestartsOfRanksThatNobodyStartsAreRefused) {
  const Workplace work;
  write_tiny_run(work);
  for (const auto& [flags, why] : {std::pair{"", "there is one rank"},
                                   std::pair{" -n 2 --runtime.transport=threads", "runtime.transport is threads"}}) {
    const Output refused = work.tutti(std::string("train run.toml --run.name=run --max-restarts=1") + flags);
    EXPECT_EQ(refused.status, 2) << flags;
    EXPECT_NE(
        refused.err.find(
            std::string(
                "--max-restarts=1: only ranks that this command starts as processes are started again, and here ") +
            why),
        std::string::npos)
        << refused.err;
  }
}

// A replacement may come when the others have just ended.
TEST_F(RankLoss, AtTheEndLeavesNoReplacementWaiting) {
  for (const char* planted : {"1:saving:6", "2:validating:6", "3:sampling:6", "0:sampling:6"}) {
    for (int again = 0; again < 3; ++again) {
      const Workplace work;
      write_tiny_run(work);
      const Output run = work.tutti(kSurviving + " --max-restarts=1", std::string("TUTTI_LOSE_RANK=") + planted);
      EXPECT_EQ(run.status, 0) << planted << ": " << run.err;
      EXPECT_EQ(outcome_of(work), expected()) << planted;
    }
  }
}

TEST_F(RankLoss, OfAllRanksWithoutAReplacementLeavesTheCheckpoint) {
  const Workplace work;
  write_tiny_run(work);
  const std::string flags = "train run.toml --run.name=run -n 2 --training.survive_rank_loss=true";
  const Output run = work.tutti(flags, "TUTTI_LOSE_RANK=0:prepared:4,1:computed:5");
  EXPECT_EQ(run.status, 137) << run.err;
  EXPECT_EQ(work.tutti(flags).status, 0) << work.read("err.txt");
  EXPECT_NE(work.read("err.txt").find("resuming runs/run from step 3"), std::string::npos) << work.read("err.txt");
  EXPECT_EQ(outcome_of(work), expected());
}

TEST_F(RankLoss, ASignalStopsARunThatHasLostARankAndTheCommandResumesIt) {
  const Workplace work;
  write_tiny_run(work);
  const std::string flags = " --training.steps=300 --checkpoint.every=0 --validation.every=0";
  const int pid = work.start(kSurviving + flags, "TUTTI_LOSE_RANK=0:block:20");
  while (work.read("runs/run/metrics.jsonl").find("\"lost_ranks\"") == std::string::npos) usleep(500);
  kill(pid, SIGTERM);
  EXPECT_EQ(Workplace::wait(pid), 130) << work.read("err.txt");
  EXPECT_EQ(work.tutti("train run.toml --run.name=run -n 2" + flags).status, 0) << work.read("err.txt");
  EXPECT_NE(work.read("err.txt").find("resuming runs/run from step "), std::string::npos) << work.read("err.txt");
  EXPECT_EQ(outcome_of(work), expected(flags));
}

// The ranks that are left wait for the launcher to say who goes on.
TEST_F(RankLoss, WithTheLauncherIsTheEndOfAllRanksAtOnce) {
  for (const std::string& layout : {std::string(), kShards}) {
    for (const size_t victim : {0u, 3u}) {
      const Workplace work;
      write_tiny_run(work);
      const int pid =
          work.start(kSurviving + layout + " --training.steps=100000 --checkpoint.every=0 --validation.every=0");
      while (work.read("runs/run/metrics.jsonl").find("\"step\":5,") == std::string::npos) usleep(500);
      const std::vector<int> ranks = ranks_of(pid);
      ASSERT_EQ(ranks.size(), 4u) << work.read("err.txt");
      kill(pid, SIGSTOP);
      kill(ranks[victim], SIGKILL);
      kill(pid, SIGKILL);
      EXPECT_EQ(Workplace::wait(pid), 137);
      const auto begin = std::chrono::steady_clock::now();
      const auto is_left = [&] {
        return std::any_of(ranks.begin(), ranks.end(), [](int rank) { return kill(rank, 0) == 0; });
      };
      while (is_left() && std::chrono::steady_clock::now() - begin < std::chrono::minutes(2)) usleep(10'000);
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << "the ranks slept";
      EXPECT_FALSE(is_left());
    }
  }
}

TEST_F(RankLoss, IsRefusedWhereNoMemoryOutlivesARank) {
  const Workplace work;
  write_tiny_run(work);
  const auto refused = [&](const std::string& flags) {
    return work.tutti("train run.toml --run.name=run --training.survive_rank_loss=true " + flags);
  };
  for (const std::string& flags :
       {std::string("-n 2 --runtime.transport=gloo"), std::string("-n 2 --runtime.transport=threads"),
        std::string("-n 2 --parallelism.tensor_parallel_degree=2")}) {
    const Output run = refused(flags);
    EXPECT_EQ(run.status, 2) << flags;
    EXPECT_NE(run.err.find("--max-restarts=N: then all ranks go on from the last checkpoint"), std::string::npos)
        << run.err;
  }
  // A launcher that does not hold the memory.
  const Output run = work.tutti("launch -n 2 -- " TUTTI_BINARY_DIR
                                "/tutti train run.toml --run.name=run --training.survive_rank_loss=true");
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("or tutti launch --survive-rank-loss"), std::string::npos) << run.err;
}

TEST_F(RankLoss, IsSurvivedUnderTuttiLaunch) {
  const Workplace work;
  write_tiny_run(work);
  const Output run = work.tutti("launch --survive-rank-loss -n 4 -- " TUTTI_BINARY_DIR
                                "/tutti train run.toml --run.name=run --training.survive_rank_loss=true",
                                "TUTTI_LOSE_RANK=0:block:3");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(outcome_of(work), expected()) << run.err;
}

// A save in the background is lost with a rank that writes it: the ranks that are left save the step at which they
// stand.
TEST_F(RankLoss, InTheMiddleOfASaveInTheBackgroundChangesNothing) {
  const std::string async = " --checkpoint.async=true";
  for (const std::string& layout : {std::string(), kShards}) {
    for (const char* planted :
         {"1:writing:3", "0:writing:3", "2:prepared:4", "3:writing:6", "0:writing:6", "0:saving:6"})
      expect_survived(planted, layout + async, 1);
    expect_survived("1:writing:3", layout + async + " --max-restarts=1", 1);
  }
  struct Case {
    const char *planted, *flags;
    bool is_lost;  // whenever the rank is, not only when it has not written its part by then
  };
  // At the end of a run that stops early, too, and where the next step is committed and not yet logged.
  for (const Case& c :
       {Case{"1:writing:3", "", true}, Case{"1:writing:4", " --stop-at 4", true}, Case{"2:applied:4", "", false}}) {
    const Workplace work;
    write_tiny_run(work);
    const Output run = work.tutti(kSurviving + async + c.flags, std::string("TUTTI_LOSE_RANK=") + c.planted);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_TRUE(!c.is_lost || run.err.find("was lost with a rank that wrote it; ") != std::string::npos)
        << c.planted << ": " << run.err;
    EXPECT_EQ(train::list_checkpoints(work.folder() / "runs/run/checkpoint").size(), 2U)
        << c.planted << ": " << run.err;
  }
}

// A number of neighbours that keep copies need not divide the ranks that are left.
TEST_F(RankLoss, ChangesALayoutThatNeedsTheRanksItHad) {
  for (const std::string& layout :
       {kShards + " --parallelism.fsdp_reshard_after_forward=4",
        std::string(" --parallelism.data_parallel_replicate_degree=2 --parallelism.data_parallel_shard_degree=2 "
                    "--parallelism.fsdp_reshard_after_forward=2"),
        std::string(" --parallelism.data_parallel_replicate_degree=2 --parallelism.data_parallel_shard_degree=2 "
                    "--parallelism.outer_dp_sharding_strategy=optim")})
    expect_survived("1:prepared:3", layout, 1);
}

// The biases that balance experts are part of a step, and its record tells the loads.
TEST_F(RankLoss, OfAMixtureOfExpertsChangesNothing) {
  const std::string moe = " --model.flavor=tiny_moe --data.tokenizer=byte";
  for (const std::string& layout : {std::string(), kShards}) {
    for (const char* planted : {"1:prepared:4", "0:computed:3", "2:block:5", "0:applied:4", "3:validating:6"})
      expect_survived(planted, layout, 1, moe);
  }
  expect_survived("0:block:2,2:prepared:4", kShards + " --max-restarts=2", 2, moe);
  const Workplace work, whole;
  for (const Workplace* w : {&work, &whole}) write_tiny_run(*w);
  EXPECT_EQ(work.tutti(kSurviving + moe, "TUTTI_LOSE_RANK=0:applied:4").status, 0) << work.read("err.txt");
  EXPECT_EQ(whole.tutti("train run.toml --run.name=run -n 1" + moe).status, 0) << whole.read("err.txt");
  const auto loads_in = [](const Workplace& w) {
    std::vector<std::vector<int64_t>> tokens;
    for (const train::StepRecord& record : train::read_metrics(w.folder() / "runs/run/metrics.jsonl")) {
      for (const train::ExpertLoad& load : record.experts) tokens.push_back(load.tokens);
    }
    return tokens;
  };
  EXPECT_FALSE(loads_in(whole).empty());
  EXPECT_EQ(loads_in(work), loads_in(whole)) << "also of the step whose record was lost before it was written";
}

// The launcher knows the pid of the shell, and the rank its own.
TEST_F(RankLoss, AReplacementBehindAShellJoins) {
  const Workplace work;
  write_tiny_run(work);
  const std::string flags =
      " --training.steps=150 --checkpoint.every=0 --validation.every=0 --validation.sample_tokens=0 "
      "--lr_scheduler.warmup_steps=2";
  const std::string shell = "sh -c '" TUTTI_BINARY_DIR
                            "/tutti train run.toml --run.name=run --training.survive_rank_loss=true" +
                            flags + "; status=$?; test $status = 137 && kill -KILL $$; exit $status'";
  const Output run =
      work.tutti("launch --survive-rank-loss --max-restarts 1 -n 2 -- " + shell, "TUTTI_LOSE_RANK=1:block:3");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("going on with 2 ranks from step "), std::string::npos) << run.err;
  EXPECT_EQ(outcome_of(work), expected(flags)) << run.err;
}

// --fresh is done once: by the first start that comes so far, and by no later one.
TEST_F(RankLoss, AFreshRunIsFreshAlsoWhenTheFirstStartDiesBeforeIt) {
  const Workplace work;
  write_tiny_run(work);
  const std::string train = TUTTI_BINARY_DIR "/tutti train run.toml --run.name=run";
  ASSERT_EQ(work.tutti("train run.toml --run.name=run --training.seed=7").status, 0) << work.read("err.txt");
  const Output run =
      work.tutti("launch --max-restarts 1 -n 2 -- sh -c 'test $TORCHELASTIC_RESTART_COUNT = 0 && exit 3; exec " +
                 train + " --fresh'");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("moved the old run to runs/run.old-1"), std::string::npos) << run.err;
  EXPECT_EQ(outcome_of(work), expected()) << run.err;
}

TEST_F(RankLoss, OneRankTrainsAsEver) {
  const Workplace work;
  write_tiny_run(work);
  const Output run = work.tutti("train run.toml --run.name=run -n 1 --training.survive_rank_loss=true");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(outcome_of(work), expected());
}

TEST_F(RankLoss, AFewAtRandomMomentsChangeNothing) {
  EXPECT_EQ(lose_ranks(LossLayout::replicas, 5, 3).difference, "");
  EXPECT_EQ(lose_ranks(LossLayout::shards, 6, 3).difference, "");
}

}  // namespace
}  // namespace tutti::test
