// Checkpoints of divided parameters: the files of one rank, whoever wrote them, read back by any number of ranks.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/train/support/temp_folder.h"
#include "tests/train/support/tiny_model.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/ops/creation.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/step/shard_model.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

// A model, divided or not, with an optimizer that has taken a step.
struct Trained {
  Trained(comm::ProcessGroup* group, int64_t replicas, uint64_t seed) : model(tiny_config(2), 64) {
    if (group != nullptr)
      shard_model(model, {.data_parallel_replicate_degree = replicas, .data_parallel_shard_degree = -1}, group);
    seed_all(seed);
    nn::initialize(model);
    optimizer = optim::make_adamw(model.named_parameters());
    std::vector<Tensor> grads;
    for (const nn::NamedParameter& p : optimizer->parameters()) {
      const Tensor whole = full(to_shape(p.parameter.sizes()), 0.25);
      const Tensor master = p.parameter.master();
      grads.push_back(dist::is_dtensor(master)
                          ? dist::distribute_tensor(whole, dist::mesh_of(master), dist::placements_of(master),
                                                    {.layout = {.cut = dist::Cut::chunk}, .src_data_rank = -1})
                          : whole);
    }
    optimizer->step(grads, 0.01);
  }
  models::Decoder model;
  std::unique_ptr<optim::Optimizer> optimizer;
};

const TrainState kState{.step = 12, .items_seen = 1200, .next_row = 84, .optimizer_steps = 1, .seed = 9};

std::string saved_by(int ranks, int64_t replicas, const fs::path& folder) {
  comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
    const Trained trained(&group, replicas, 1);
    save_checkpoint(folder, trained.model, *trained.optimizer, kState, 0, &group);
  });
  std::string all;
  for (const char* file : {kModelFile, kOptimizerFile, kStateFile}) all += contents_of(folder / "step-12" / file);
  return all;
}

TEST(CheckpointOfRanks, HasTheBytesOfOneRank) {
  const TempFolder folder;
  const Trained alone(nullptr, 1, 1);
  save_checkpoint(folder / "alone", alone.model, *alone.optimizer, kState, 0);
  std::string expected;
  for (const char* file : {kModelFile, kOptimizerFile, kStateFile})
    expected += contents_of(folder.path() / "alone" / "step-12" / file);
  for (const int ranks : {2, 3, 4}) {
    EXPECT_TRUE(saved_by(ranks, 1, folder.path() / fmt::format("shards-{}", ranks)) == expected)
        << ranks << " ranks that divide the parameters";
    EXPECT_TRUE(saved_by(ranks, ranks, folder.path() / fmt::format("replicas-{}", ranks)) == expected)
        << ranks << " replicas";
  }
  EXPECT_TRUE(saved_by(6, 2, folder / "both") == expected);
}

TEST(CheckpointOfRanks, IsReadByAnyOtherNumberOfRanks) {
  const TempFolder folder;
  const std::string saved = saved_by(4, 1, folder / "first");
  for (const int ranks : {1, 3, 6}) {
    const fs::path again = folder.path() / fmt::format("again-{}", ranks);
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const Trained other(&group, 1, 2);
      const TrainState state =
          load_checkpoint(folder.path() / "first" / "step-12", other.model, *other.optimizer, &group);
      save_checkpoint(again, other.model, *other.optimizer, state, 0, &group);
    });
    std::string all;
    for (const char* file : {kModelFile, kOptimizerFile, kStateFile}) all += contents_of(again / "step-12" / file);
    EXPECT_TRUE(all == saved) << ranks << " ranks";
  }
}

// Hosts may have file systems of their own: ranks that do not see the file send what they store.
TEST(CheckpointOfRanks, IsWrittenByRank0WhereOthersDoNotSeeTheFile) {
  const TempFolder folder;
  const Trained alone(nullptr, 1, 1);
  fs::create_directory(folder / "alone");
  write_tensors(folder.path() / "alone" / "optimizer", state_of(*alone.optimizer), {}, nullptr);
  for (const auto& [ranks, replicas] : {std::pair(3, 1), std::pair(4, 2)}) {
    const fs::path first = folder.path() / fmt::format("first-host-{}", ranks),
                   other = folder.path() / fmt::format("other-host-{}", ranks);
    fs::create_directory(first);
    std::atomic<size_t> with_digests = 0;
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const Trained trained(&group, replicas, 1);
      const fs::path mine = (group.rank() == 0 ? first : other) / "optimizer";
      write_tensors(mine, state_of(*trained.optimizer), {}, &group);
      if (!digests_of_files({mine}, &group).empty()) ++with_digests;
    });
    EXPECT_TRUE(contents_of(first / "optimizer") == contents_of(folder.path() / "alone" / "optimizer")) << ranks;
    EXPECT_FALSE(fs::exists(other));
    EXPECT_EQ(with_digests, 1u);
  }
}

// A rank that has a copy of its own checks all of it, and finds the damage that others do not have.
TEST(CheckpointOfRanks, CopiesOfOtherHostsAreCheckedWhole) {
  const TempFolder folder;
  saved_by(2, 1, folder / "first");
  fs::copy(folder / "first", folder / "second", fs::copy_options::recursive);
  const fs::path damaged = folder.path() / "second" / "step-12" / kModelFile;
  std::string bytes = contents_of(damaged);
  bytes[bytes.size() / 4] ^= 1;
  std::ofstream(damaged, std::ios::binary) << bytes;
  std::atomic<int> refused = 0;
  EXPECT_THROW(comm::run_ranks(2,
                               [&](comm::ProcessGroup& group) {
                                 const Trained other(&group, 1, 2);
                                 try {
                                   load_checkpoint(
                                       (group.rank() == 0 ? folder / "first" : folder / "second") / "step-12",
                                       other.model, *other.optimizer, &group);
                                 } catch (const EnvironmentError&) {
                                   ++refused;
                                   throw;
                                 }
                               }),
               EnvironmentError);
  EXPECT_GE(refused, 1);
}

// Whoever cannot read or write stops all, and nothing is left behind.
TEST(CheckpointOfRanks, ErrorsOfOneRankStopAll) {
  const TempFolder folder;
  saved_by(3, 1, folder.path());
  std::string bytes = contents_of(folder.path() / "step-12" / kOptimizerFile);
  bytes.back() ^= 1;
  std::ofstream(folder.path() / "step-12" / kOptimizerFile, std::ios::binary) << bytes;
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    const Trained other(&group, 1, 2);
    try {
      load_checkpoint(folder / "step-12", other.model, *other.optimizer, &group);
    } catch (const EnvironmentError& e) {
      if (std::string(e.what()).find("changed: state.") == std::string::npos) throw InternalError(e.what());
      return;
    }
    throw InternalError("a damaged checkpoint was loaded");
  });
  std::ofstream(folder / "file") << "no folder";
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    const Trained trained(&group, 1, 1);
    try {
      save_checkpoint(folder / "file", trained.model, *trained.optimizer, kState, 0, &group);
    } catch (const EnvironmentError& e) {
      return;
    }
    throw InternalError("a checkpoint was saved into a file");
  });
}

}  // namespace
}  // namespace tutti::train
