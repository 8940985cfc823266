// A rank that dies while ranks divide a model: it is named, and nobody outlives the run.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "tests/cli/support/layout_runs.h"
#include "tests/cli/support/losses.h"

namespace tutti::test {
namespace {

struct Layout {
  const char *name, *flags;
  int ranks;
};

struct DividedFaults : LayoutRuns, testing::WithParamInterface<Layout> {
  DividedFaults() : LayoutRuns(100000, "--numerics.token_grain=16 --quiet") {}
};

TEST_P(DividedFaults, AKilledRankIsNamedAndEndsTheRun) {
  for (const bool last : {false, true}) {
    const std::string run = last ? "last" : "first";
    const int pid = start(run, GetParam().flags);
    const auto is_under_way = [&] {
      return work.read("runs/" + run + "/metrics.jsonl").find("\"step\":3,") != std::string::npos;
    };
    for (int i = 0; i < 3000 && !is_under_way(); ++i) usleep(50'000);
    ASSERT_TRUE(is_under_way()) << work.read("err.txt");
    const std::vector<int> ranks = ranks_of(pid);
    ASSERT_EQ(ranks.size(), static_cast<size_t>(GetParam().ranks));
    const int victim = last ? ranks.back() : ranks.front();
    kill(victim, SIGKILL);
    EXPECT_EQ(Workplace::wait(pid), 137);
    const std::string err = work.read("err.txt"), killed = "rank " + std::to_string(last ? GetParam().ranks - 1 : 0) +
                                                           " (pid " + std::to_string(victim) +
                                                           ") was killed by SIGKILL";
    EXPECT_NE(err.find(killed), std::string::npos) << killed << "\n" << err;
    for (const int other : ranks) EXPECT_NE(kill(other, 0), 0) << "rank with pid " << other << " outlived the run";
  }
}

constexpr Layout kLayouts[] = {
    {"Tp2", "-n 2 --model.flavor=tiny-tp4 --parallelism.tensor_parallel_degree=2", 2},
    {"Tp2Async",
     "-n 2 --model.flavor=tiny-tp4 --parallelism.tensor_parallel_degree=2 --training.compile=true "
     "--parallelism.enable_async_tensor_parallel=true",
     2},
    {"Fsdp2Tp2",
     "-n 4 --model.flavor=tiny-tp4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2",
     4},
    {"Fsdp2Tp2Gloo",
     "-n 4 --model.flavor=tiny-tp4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2 "
     "--runtime.transport=gloo",
     4},
    {"Fsdp4Ep2",
     "-n 4 --model.flavor=tiny_moe-ep8 --parallelism.data_parallel_shard_degree=4 "
     "--parallelism.expert_parallel_degree=2 --parallelism.data_parallel_schedule=every_round",
     4},
    {"Fsdp2Tp2Ep4",
     "-n 4 --model.flavor=tiny_moe-tp4 --parallelism.data_parallel_shard_degree=2 "
     "--parallelism.tensor_parallel_degree=2 --parallelism.expert_parallel_degree=4 "
     "--parallelism.data_parallel_schedule=every_round",
     4},
    {"Ep4Gloo",
     "-n 4 --model.flavor=tiny_moe-ep8 --parallelism.expert_parallel_degree=4 "
     "--parallelism.data_parallel_schedule=every_round --runtime.transport=gloo",
     4},
    {"Ep4Store",
     "-n 4 --model.flavor=tiny_moe-ep8 --parallelism.expert_parallel_degree=4 "
     "--parallelism.data_parallel_schedule=every_round "
     "--parallelism.expert_parallel_comm_backend=direct_store --training.compile=true",
     4},
    {"Fsdp4Ep2Read",
     "-n 4 --model.flavor=tiny_moe-ep8 --parallelism.data_parallel_shard_degree=4 "
     "--parallelism.expert_parallel_degree=2 --parallelism.data_parallel_schedule=every_round "
     "--parallelism.expert_parallel_comm_backend=gather_on_read",
     4},
};
INSTANTIATE_TEST_SUITE_P(Of, DividedFaults, testing::ValuesIn(kLayouts),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace tutti::test
