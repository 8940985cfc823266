// Ranks that die while distributed tensors are moved.
#include <csignal>

#include "tests/comm/support/forked_ranks.h"
#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/job/errors.h"
#include "tutti/ops/binary.h"

namespace tutti::dist {
namespace {

TEST(DeadRanks, AreNamedToWhoReadsWhatTheyDidNotSend) {
  const auto ranks = comm::run_world(2, [](comm::ProcessGroup& world) {
    const Mesh mesh = init_device_mesh("cpu", {2});
    const Tensor t = distribute_tensor(sample({5, 7}), mesh, {shard(0)}, {.src_data_rank = -1});
    redistribute(t, {shard(1)});
    if (world.rank() == 1) raise(SIGKILL);
    const Tensor moved = redistribute(t, {shard(1)}, {.async_op = true});
    for (int reads = 0; reads < 2; ++reads) {
      try {
        mul(moved, 2.0);
      } catch (const comm::PeerError& error) {
        const std::string said = error.what();
        TUTTI_CHECK(
            said.find("rank 1 (pid ") != std::string::npos && said.find("all_to_all_v_single") != std::string::npos,
            "{}", said);
        continue;
      }
      throw std::logic_error("nothing was thrown");
    }
  });
  EXPECT_TRUE(ranks[0].succeeded()) << ranks[0].error;
}

}  // namespace
}  // namespace tutti::dist
