// `tutti replay`: recorded steps, trained again on other layouts, and the bits that must come out.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/support/tiny_run.h"

namespace tutti::test {
namespace {

struct Replay : testing::Test {
  Replay() {
    write_tiny_run(work);
    const Output run = work.tutti("train run.toml --quiet");
    EXPECT_EQ(run.status, 0) << run.err;
  }
  Workplace work;
};

TEST_F(Replay, OtherLayoutsRepeatTheBits) {
  const std::string before = outcome_of(work);
  for (const char* flags : {"--from 0", "--from 3 -n 2", "--from 3 --steps 1 -n 4 --runtime.transport=gloo",
                            "--from 0 --steps 4 --training.compile=true", ""}) {
    const Output output = work.tutti(std::string("replay runs/run ") + flags);
    EXPECT_EQ(output.status, 0) << flags << ": " << output.out << output.err;
    EXPECT_NE(output.out.find("\nsame bits: "), std::string::npos) << flags << ": " << output.out;
  }
  const Output text = work.tutti("replay runs/run --from 3 -n 2");
  EXPECT_EQ(
      text.out.find(
          "replaying steps 4 to 6 of runs/run on 2 ranks\nnumbers of steps 4 to 6: same bits\ncheckpoints of step 6: "),
      0u)
      << text.out;
  EXPECT_EQ(outcome_of(work), before) << "the recorded run was changed";
  const auto json = nlohmann::json::parse(work.tutti("replay runs/run --from 0 --steps 3 --json --keep kept").out);
  EXPECT_EQ(json["same_bits"], true);
  EXPECT_EQ(json["steps"], nlohmann::json({1, 2, 3}));
  EXPECT_EQ(json["checkpoints"], nlohmann::json({3}));
  EXPECT_TRUE(std::filesystem::exists(work.folder() / "kept/replay/checkpoint/step-3/state.json"));
}

TEST_F(Replay, RanksAsThreadsAreALayoutToo) {
  EXPECT_EQ(work.tutti("replay runs/run --from 3 -n 3 --runtime.transport=threads").status, 0);
  ASSERT_EQ(work.tutti("train run.toml --quiet --run.name=threads -n 3 --runtime.transport=threads "
                       "--parallelism.data_parallel_replicate_degree=3")
                .status,
            0);
  for (const char* flags : {"", " --from 0 -n 2", " --from 3 -n 2 --runtime.transport=shm"}) {
    const Output output = work.tutti(std::string("replay runs/threads") + flags);
    EXPECT_EQ(output.status, 0) << flags << ": " << output.out << output.err;
  }
}

// Every degree and every way to divide work, of which none need be possible on the ranks of the replay.
TEST_F(Replay, RunsOfEveryLayoutAreRepeatedOnAnyRanks) {
  const std::string
      experts =
          " --parallelism.data_parallel_schedule=every_round --model.flavor=tiny_moe-ep8 --numerics.token_grain=16",
      heads =
          " --model.flavor=tiny-tp4 --data.sequence_length=64 --training.global_batch_tokens=1024 "
          "--numerics.token_grain=32";
  const std::pair<const char*, std::string> layouts[] = {
      {"ep", "-n 2 --parallelism.expert_parallel_degree=2" + experts},
      {"fsdp_ep",
       "-n 4 --parallelism.data_parallel_shard_degree=4 --parallelism.expert_parallel_degree=2 "
       "--parallelism.expert_parallel_comm_backend=direct_store" +
           experts},
      {"tp", "-n 2 --parallelism.tensor_parallel_degree=2 --parallelism.enable_sequence_parallel=false" + heads},
      {"hsdp",
       "-n 4 --runtime.transport=gloo --parallelism.data_parallel_replicate_degree=2 "
       "--parallelism.data_parallel_shard_degree=2 --parallelism.outer_dp_sharding_strategy=optim"},
      {"overlap",
       "-n 4 --runtime.transport=gloo --parallelism.data_parallel_shard_degree=4 "
       "--parallelism.fsdp_reshard_after_forward=2 --parallelism.data_parallel_overlap=backward"},
      {"rounds", "-n 3 --parallelism.data_parallel_schedule=every_round"},
  };
  for (const auto& [name, flags] : layouts) {
    const Output run = work.tutti(fmt::format("train run.toml --quiet --stop-at 3 --run.name={} {}", name, flags));
    ASSERT_EQ(run.status, 0) << name << run.err;
    for (const char* ranks : {"", " -n 3"}) {
      const Output output = work.tutti(fmt::format("replay runs/{} --from 0{}", name, ranks));
      EXPECT_EQ(output.status, 0) << name << ranks << ": " << output.out << output.err;
    }
  }
  const Output again = work.tutti(
      "replay runs/ep --from 0 -n 4 --parallelism.expert_parallel_degree=4 "
      "--parallelism.data_parallel_schedule=every_round");
  EXPECT_EQ(again.status, 0) << again.out << again.err;
}

// A run that was prolonged has other learning rates behind its first end: the steps are repeated with the settings they
// had.
TEST_F(Replay, SettingsAreThoseOfTheRepeatedSteps) {
  ASSERT_EQ(work.tutti("train run.toml --quiet --training.steps=12 --lr_scheduler.decay_ratio=0.5").status, 0);
  for (const char* flags : {"--from 0 --steps 6", "--from 3 --steps 3", "--from 6"}) {
    const Output output = work.tutti(std::string("replay runs/run ") + flags);
    EXPECT_EQ(output.status, 0) << flags << ": " << output.out << output.err;
  }
  const Output across = work.tutti("replay runs/run --from 3");
  EXPECT_EQ(across.status, 125) << across.out;
  EXPECT_NE(across.err.find("runs/run went on with other settings between its checkpoints of steps 6 and 9; replay "
                            "steps up to 6, or from a later checkpoint"),
            std::string::npos)
      << across.err;
}

TEST_F(Replay, NamesTheStepThatWasRecordedOtherwise) {
  std::string metrics = work.read("runs/run/metrics.jsonl");
  const std::string old = work.metric("run", "loss_hex")[4];
  metrics.replace(metrics.find(old), old.size(), "0x1.8p+2");
  work.write("runs/run/metrics.jsonl", metrics);
  EXPECT_EQ(work.tutti("replay runs/run --from 0 --steps 4").status, 0);
  const Output output = work.tutti("replay runs/run --from 3");
  EXPECT_EQ(output.status, 1) << output.err;
  EXPECT_NE(output.out.find("first difference at step 5: loss 0x1.8p+2 | " + old), std::string::npos) << output.out;
}

// From the beginning on, another setting is another run; behind a checkpoint it is refused as in any resume.
TEST_F(Replay, SettingsThatChangeNumbersAreTold) {
  const Output output = work.tutti("replay runs/run --from 0 --steps 6 --numerics.virtual_shards=2");
  EXPECT_EQ(output.status, 1) << output.err;
  EXPECT_NE(output.out.find("setting numerics.virtual_shards: 8 | 2 (may change the numbers)\n"), std::string::npos)
      << output.out;
  EXPECT_NE(output.out.find("\ndifferent: "), std::string::npos) << output.out;
  const Output refused = work.tutti("replay runs/run --from 3 --numerics.virtual_shards=4");
  EXPECT_EQ(refused.status, 125);
  EXPECT_NE(refused.err.find("numerics.virtual_shards"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("training the steps again ended with status 2"), std::string::npos) << refused.err;
}

TEST_F(Replay, EverythingElseIs125) {
  const std::pair<const char*, const char*> cases[] = {
      {"replay", "run is required"},
      {"replay runs/gone", "runs/gone is not the folder of a run: it holds no config.resolved.toml"},
      {"replay runs/run --from 2",
       "runs/run has no checkpoint of step 2; a replay can start from 0, 3, 6 (0 is the beginning)"},
      {"replay runs/run --from 6", "runs/run has recorded no step behind step 6"},
      {"replay runs/run --from 3 --steps 9", "runs/run has no record of step 7; it has recorded steps 1 to 6"},
      {"replay runs/run --from -1", "--from"},
      {"replay runs/run --steps 0", "--steps"},
      {"replay runs/run word", "word"},
      {"replay runs/run --run.name=run", "a replay has a folder of its own; --keep FOLDER keeps it"},
      {"replay runs/run --keep runs", "runs is not empty"},
  };
  for (const auto& [command, message] : cases) {
    const Output output = work.tutti(command);
    EXPECT_EQ(output.status, 125) << command;
    EXPECT_NE(output.err.find(message), std::string::npos) << command << ": " << output.err;
    EXPECT_EQ(output.out, "") << command;
  }
}

// The flag beneath it: the same run in two starts.
TEST_F(Replay, StopAtSavesAndTheSameCommandGoesOn) {
  const std::string whole = outcome_of(work);
  Output output = work.tutti("train run.toml --fresh --stop-at 2");
  EXPECT_EQ(output.status, 0) << output.err;
  EXPECT_NE(output.err.find("stopped after step 2; the same command without --stop-at goes on from there"),
            std::string::npos)
      << output.err;
  EXPECT_EQ(work.metric("run", "step").size(), 2u);
  output = work.tutti("train run.toml -n 2");
  EXPECT_EQ(output.status, 0) << output.err;
  EXPECT_NE(output.err.find("tensors of step 6: "), std::string::npos) << output.err;
  std::filesystem::remove_all(work.folder() / "runs/run/checkpoint/step-2");
  EXPECT_EQ(outcome_of(work), whole);
  EXPECT_EQ(work.tutti("train run.toml --stop-at 0").status, 2);
}

}  // namespace
}  // namespace tutti::test
