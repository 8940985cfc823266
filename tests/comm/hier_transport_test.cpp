#include "tutti/comm/hier/hier_transport.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/comm/support/local_hosts.h"
#include "tests/comm/support/transport_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

const std::vector<int> kPlacements[] = {{0, 0},       {0, 1},          {0, 0, 1},         {0, 1, 0},
                                        {0, 0, 1, 1}, {0, 1, 2, 0, 1}, {1, 0, 0, 1, 1, 0}};

TEST(HierTransport, RoundsBringTheRightBytesWhereverRanksSit) {
  for (const auto& placement : kPlacements) {
    const Hosts hosts(placement);
    expect_on_ranks(hosts.size(), hosts.make(), [](Transport& t) { check_rounds(t, 11, 25, 900'000); });
  }
}

TEST(HierTransport, MessagesGoTheirWay) {
  for (const auto& placement : kPlacements) {
    const Hosts hosts(placement);
    expect_on_ranks(hosts.size(), hosts.make(), [](Transport& t) {
      for (uint64_t seed = 1; seed <= 3; ++seed) check_messages(t, seed);
      exchange_one_block(t, barrier_call(1), 0);
    });
  }
}

TEST(HierTransport, SmallCollectiveIsOneRoundOfEachSide) {
  const Hosts hosts({0, 0, 1, 1});
  expect_on_ranks(4, hosts.make(), [](Transport& t) {
    for (int64_t i = 1; i <= 10; ++i) exchange_one_block(t, tensor_call(i, 1000), 1000);
  });
  EXPECT_EQ(hosts.all->packets(), 2 * 12 + 10 * 12);  // hello and leave, then one per pair
}

TEST(HierTransport, MismatchesAreNamedOnAllRanksAndTheGroupGoesOn) {
  for (int odd = 0; odd < 4; ++odd) {
    const Hosts hosts({0, 0, 1, 1});  // a network of its own: what ranks say when they leave stays in it
    expect_on_ranks(4, hosts.make(), [&](Transport& t) {
      const int64_t bytes = t.rank() == odd ? 80'000 : 16;
      try {
        exchange_one_block(t, tensor_call(1, bytes), bytes);
        throw std::logic_error("no error");
      } catch (const UsageError& error) {
        EXPECT_SAYS(error.what(), "shapes differ", "group 'test'", "rank 0 called",
                    odd == 0 ? "rank 1 called" : fmt::format("rank {} called", odd));
      }
      exchange_one_block(t, tensor_call(2, 16), 16);
      // Uneven sizes that do not fit.
      std::vector<std::byte> memory(64);
      const ConstBlock offer{memory.data(), 64};
      std::vector<int64_t> takes(4, 64);
      if (t.rank() == odd) takes[static_cast<size_t>((odd + 1) % 4)] = 5;
      const CallRecord call = uneven_call(3);
      const Exchange exchange{.offers = {&offer, 1}, .takes = takes};
      KeepingReceiver receiver(takes);
      try {
        t.start(call, 0, exchange, receiver);
        finish_round(t);
        throw std::logic_error("no error");
      } catch (const UsageError& error) {
        EXPECT_SAYS(error.what(),
                    fmt::format("rank {} sends 64 bytes to rank {}, which expects 5", (odd + 1) % 4, odd));
      }
      exchange_one_block(t, tensor_call(4, 16), 16);
    });
  }
}

TEST(HierTransport, LostPeerEndsTheGroupOnBothHosts) {
  for (const int lost : {1, 2}) {
    const Hosts hosts({0, 0, 1, 1});
    const auto errors = on_ranks(4, hosts.make(), [&](Transport& t) {
      exchange_one_block(t, barrier_call(1), 0);
      if (t.rank() == lost) {
        hosts.all->lose(lost, "its connection was closed");
        hosts.inside[static_cast<size_t>(hosts.hosts[static_cast<size_t>(lost)])]->lose(lost % 2,
                                                                                        "its connection was closed");
        return;
      }
      for (int64_t i = 2; i < 1000; ++i) exchange_one_block(t, tensor_call(i, 500'000), 500'000);
    });
    for (int r = 0; r < 4; ++r) {
      if (r != lost) EXPECT_SAYS(errors[static_cast<size_t>(r)], "PeerError: rank ", "its connection was closed");
    }
  }
}

TEST(HierTransport, FailReachesAll) {
  const Hosts hosts({0, 0, 1, 1});
  const auto errors = on_ranks(4, hosts.make(), [](Transport& t) {
    if (t.rank() == 3) t.fail("out of paper");
    exchange_one_block(t, barrier_call(1), 0);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "PeerError: out of paper");
}

TEST(HierTransport, LateRanksAreNamedByTheirGroupRank) {
  const Hosts hosts({0, 1, 0, 1});
  std::atomic<bool> looked = false;
  expect_on_ranks(4, hosts.make(), [&](Transport& t) {
    if (t.rank() == 0) {
      const CallRecord call = barrier_call(1);
      const ConstBlock nothing;
      const int64_t zero = 0;
      const Exchange exchange{.offers = {&nothing, 1}, .takes = {&zero, 1}};
      KeepingReceiver receiver({0, 0, 0, 0});
      t.start(call, 0, exchange, receiver);
      const auto end = Clock::now() + 10s;
      while (t.late_ranks() != std::vector<int>{2, 3} && Clock::now() < end) t.advance();
      EXPECT_EQ(t.late_ranks(), (std::vector<int>{2, 3}));
      EXPECT_EQ(t.peer(1).pid, getpid());
      looked = true;
      finish_round(t);
    } else {
      while (t.rank() >= 2 && !looked) std::this_thread::yield();
      exchange_one_block(t, barrier_call(1), 0);
    }
  });
}

TEST(HierTransport, ReceivingFromAnybodyIsRefused) {
  const Hosts hosts({0, 1});
  const auto errors = on_ranks(2, hosts.make(), [](Transport& t) {
    EXPECT_FALSE(t.traits().receives_from_any);
    std::byte memory[4];
    Message m{.is_send = false, .peer = -1, .data = memory, .bytes = 4};
    t.post(m);
  });
  EXPECT_SAYS(errors[0], "from any rank", "name the sender");
}

}  // namespace
}  // namespace tutti::comm
