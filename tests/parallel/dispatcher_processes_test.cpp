// Ways to bring tokens to the experts of other processes: the bits of the local dispatcher, and what happens when a
// process dies or shares no memory.
#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/comm/support/forked_ranks.h"
#include "tests/parallel/support/dispatch_steps.h"
#include "tests/support/message_of.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/job/errors.h"

namespace tutti::parallel {
namespace {

class DispatchersOfProcesses : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Of, DispatchersOfProcesses, testing::ValuesIn(kWays),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(DispatchersOfProcesses, HaveTheBitsOfOneRank) {
  for (const comm::ForkedResult& rank :
       comm::run_world(2, [&](comm::ProcessGroup& world) { expect_bits_of_local(world, GetParam(), kLoads[1]); }))
    EXPECT_TRUE(rank.succeeded()) << rank.error;
}

TEST(DeadRanks, AreNamedToThoseThatWait) {
  for (const ExpertExchange exchange : {ExpertExchange::direct_store, ExpertExchange::gather_on_read}) {
    const auto ranks = comm::run_world(2, [&](comm::ProcessGroup& world) {
      const TokenGrainScope grain(4);
      const auto dispatcher = dispatcher_of(world, exchange);
      Experts part(world.rank() * kExperts / 2, kExperts / 2, DType::f32);
      step(*dispatcher, part, kLoads[0], 8, 1, DType::f32, Mode::eager);
      if (world.rank() == 1) raise(SIGKILL);
      try {
        step(*dispatcher, part, kLoads[0], 8, 1, DType::f32, Mode::eager);
      } catch (const comm::PeerError& error) {
        TUTTI_CHECK(std::string(error.what()).find("rank 1 (pid ") != std::string::npos, "{}", error.what());
        return;
      }
      throw std::logic_error("nothing was thrown");
    });
    EXPECT_TRUE(ranks[0].succeeded()) << ranks[0].error;
  }
}

// The group's timeout, also one that was set after the ranks had met for their buffers.
TEST(SharedDispatchers, WaitNoLongerThanTheGroup) {
  using namespace std::chrono_literals;
  for (const ExpertExchange exchange : {ExpertExchange::direct_store, ExpertExchange::gather_on_read}) {
    for (const bool is_later : {false, true}) {
      std::atomic<bool> is_over = false;
      comm::run_ranks(2, [&](comm::ProcessGroup& world) {
        const TokenGrainScope grain(4);
        if (!is_later) world.set_timeout(2000ms);
        const auto dispatcher = dispatcher_of(world, exchange);
        Experts part(world.rank() * kExperts / 2, kExperts / 2, DType::f32);
        step(*dispatcher, part, kLoads[0], 8, 1, DType::f32, Mode::eager);
        if (is_later) world.set_timeout(300ms);
        TUTTI_CHECK(world.timeout() == (is_later ? 300ms : 2000ms), "{} ms", world.timeout().count());
        if (world.rank() == 1) {
          while (!is_over) std::this_thread::sleep_for(1ms);
          return;
        }
        const auto begin = std::chrono::steady_clock::now();
        std::string said;
        try {
          step(*dispatcher, part, kLoads[0], 8, 1, DType::f32, Mode::eager);
        } catch (const comm::TimeoutError& e) {
          said = e.what();
        }
        is_over = true;
        const auto waited = std::chrono::steady_clock::now() - begin;
        TUTTI_CHECK(!said.empty() && waited >= world.timeout() && waited < 60s, "waited {} ms: {}",
                    std::chrono::duration_cast<std::chrono::milliseconds>(waited).count(), said);
      });
    }
  }
}

TEST(SharedDispatchers, AreRefusedWhereMemoryIsNotShared) {
  const auto ranks = comm::run_world(
      2,
      [](comm::ProcessGroup& world) {
        const std::string said = message_of([&] { memory_of(world, ExpertExchange::direct_store); });
        TUTTI_CHECK(said.find("rows are to be stored in the memory of other ranks, which the transport gloo of group "
                              "'0' does not share; use transport shm or threads, or the standard "
                              "exchange") != std::string::npos,
                    "{}", said);
      },
      {.transport = "gloo"});
  for (const comm::ForkedResult& rank : ranks) EXPECT_TRUE(rank.succeeded()) << rank.error;
}

}  // namespace
}  // namespace tutti::parallel
