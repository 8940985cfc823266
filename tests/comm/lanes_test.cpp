// ProcessGroup::lanes(): more transports for the same ranks, whose calls travel at the same time.
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <numeric>

#include "tests/comm/support/transport_worlds.h"
#include "tests/support/message_of.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/ops/creation.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

bool has_gloo() {
  for (const TransportInfo& transport : known_transports())
    if (transport.name == "gloo") return transport.available;
  return false;
}

// On one group these calls would be a mismatch of the ranks.
TEST(Lanes, RanksBeginCallsOfLanesInAnyOrder) {
  for (const std::string& transport : world_transports()) {
    run_over(transport, 4, [&](ProcessGroup& group) {
      const std::vector<ProcessGroup*> lanes = group.lanes(3);
      const bool is_network = transport != "threads" && transport != "shm";
      TUTTI_CHECK(lanes.size() == (is_network ? 3U : 1U) && lanes[0] == &group, "{} lanes over {}", lanes.size(),
                  transport);
      for (int step = 0; step < 5; ++step) {
        std::vector<size_t> order(lanes.size());
        std::iota(order.begin(), order.end(), size_t{0});
        const auto first = static_cast<std::ptrdiff_t>(group.rank() + step) % static_cast<std::ptrdiff_t>(order.size());
        std::rotate(order.begin(), order.begin() + first, order.end());
        std::vector<Tensor> sums(lanes.size());
        std::vector<Work> works(lanes.size());
        for (const size_t i : order) {
          sums[i] = full({70'001}, static_cast<float>(i + 1) * static_cast<float>(group.rank() + 1));
          works[i] = lanes[i]->all_reduce(sums[i], {}, {.async = true});
        }
        for (size_t i = 0; i < lanes.size(); ++i) {
          works[i].wait();
          TUTTI_CHECK(sums[i].data<float>()[70'000] == 10.0F * static_cast<float>(i + 1), "lane {} over {}: {}", i,
                      transport, sums[i].data<float>()[70'000]);
        }
      }
    });
  }
}

TEST(Lanes, AreMadeOnceAndFollowTheirGroup) {
  if (!has_gloo()) GTEST_SKIP() << "this build has no gloo";
  run_ranks(2,
            [](ProcessGroup& group) {
              const std::vector<ProcessGroup*> two = group.lanes(2), three = group.lanes(3), one = group.lanes(1);
              EXPECT_EQ(one, std::vector{&group});
              EXPECT_EQ(three[1], two[1]);
              EXPECT_NE(three[2], two[1]);
              EXPECT_EQ(group.lanes(3), three);
              EXPECT_EQ(two[1]->world_ranks(), group.world_ranks());
              EXPECT_EQ(two[1]->name(), group.name() + ":lane:1");
              group.set_timeout(12'345ms);
              EXPECT_EQ(three[2]->timeout(), 12'345ms);
            },
            {.transport = "gloo"});
}

TEST(Lanes, LookForNaNsAsTheirGroupDoesNow) {
  if (!has_gloo()) GTEST_SKIP() << "this build has no gloo";
  run_ranks(2,
            [](ProcessGroup& group) {
              ProcessGroup& lane = *group.lanes(2)[1];
              Tensor x = full({1}, std::numeric_limits<float>::quiet_NaN());
              EXPECT_EQ(message_of([&] { lane.all_reduce(x); }), "no error");
              group.set_check_nan(true);
              EXPECT_NE(message_of([&] { lane.all_reduce(x); }), "no error");
              group.set_check_nan(false);
              EXPECT_EQ(message_of([&] { lane.all_reduce(x); }), "no error");
            },
            {.transport = "gloo"});
}

TEST(Lanes, EndWhenTheirGroupIsAborted) {
  if (!has_gloo()) GTEST_SKIP() << "this build has no gloo";
  run_ranks(2,
            [](ProcessGroup& group) {
              ProcessGroup& lane = *group.lanes(2)[1];
              lane.barrier();
              if (group.rank() == 1) return group.abort("rank 1 has seen enough");
              try {
                lane.barrier();
                ADD_FAILURE() << "no error";
              } catch (const PeerError& error) {
                EXPECT_NE(std::string(error.what()).find("rank 1 has seen enough"), std::string::npos) << error.what();
              }
            },
            {.transport = "gloo"});
}

// Ranks of one machine move bytes themselves: two calls at once would take twice as long each.
TEST(Lanes, SharedMemoryHasOne) {
  run_ranks(2, [](ProcessGroup& group) {
    EXPECT_EQ(group.lanes(4), std::vector{&group});
    EXPECT_EQ(message_of([&] { group.lanes(0); }), "lanes of group '" + group.name() + "': 0; expected at least 1");
  });
}

}  // namespace
}  // namespace tutti::comm
