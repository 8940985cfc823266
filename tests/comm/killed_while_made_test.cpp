// Ranks that are killed while a group is being made, over every transport whose groups the ranks make together: the
// others hear of it long before the deadline, with rank, pid and host.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>
#include <thread>

#include "tests/comm/support/fault_ranks.h"
#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/traces.h"
#include "tutti/comm/groups.h"
#include "tutti/core/error.h"
#include "tutti/job/rendezvous/roll_call.h"
#include "tutti/job/store/hash_store.h"
#include "tutti/job/store/prefix_store.h"
#include "tutti/job/store/socket.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm {
namespace {

constexpr int kRanks = 4;
const std::vector<int> kEveryone{0, 1, 2, 3};

// Kills its process instead of making call number `die_at` from arm() on, or from the first append().
class DyingStore final : public PrefixStore {
 public:
  explicit DyingStore(std::shared_ptr<Store> store) : PrefixStore("job", std::move(store)) {}
  void arm(int die_at) { left_ = die_at; }
  void arm_at_append(int die_at) { left_at_append_ = die_at; }

  void set(std::string_view key, std::string_view value) override { count(), PrefixStore::set(key, value); }
  std::string get(std::string_view key, Timeout timeout) override { return count(), PrefixStore::get(key, timeout); }
  int64_t add(std::string_view key, int64_t amount) override { return count(), PrefixStore::add(key, amount); }
  bool delete_key(std::string_view key) override { return count(), PrefixStore::delete_key(key); }
  void wait(const Keys& keys, Timeout timeout) override { count(), PrefixStore::wait(keys, timeout); }
  std::vector<std::string> multi_get(const Keys& keys, Timeout timeout) override {
    return count(), PrefixStore::multi_get(keys, timeout);
  }
  void append(std::string_view key, std::string_view value) override {
    PrefixStore::append(key, value);
    if (left_at_append_ > 0) left_ = left_at_append_;
  }

 private:
  void count() {
    if (left_ > 0 && --left_ == 0) raise(SIGKILL);
  }
  int left_ = 0, left_at_append_ = 0;
};

struct Scene {
  std::string transport = "shm";
  int victim = 2;
  std::function<void(DyingStore&)> arm = {};                        // on the victim, before it has a world
  std::function<void(ProcessGroup& world, DyingStore&)> then = {};  // on all
  std::function<void(const std::vector<pid_t>&)> meanwhile = {};
  bool serves_store = false;  // rank 0 does, and the store goes with it
};

// Every survivor throws before its alarm and names the victim, in the making of a group or in the first call of one.
// The deadlines are a minute away.
void expect_named(const std::string& what, const Scene& run, bool in_the_making) {
  SCOPED_TRACE(run.transport + ": " + what);
  const Traces before = look_for_traces();
  pid_t victim_pid = 0;
  {
    int ports[2];
    ASSERT_EQ(pipe(ports), 0);
    const UniqueFd port_reader(ports[0]), port_writer(ports[1]);
    // Here or in rank 0, once the ranks are forked; `readers` ranks wait for the port.
    std::unique_ptr<TcpStoreServer> server;
    const auto serve = [&](int readers) {
      server = std::make_unique<TcpStoreServer>(TcpStoreServerOptions{.bind_address = "127.0.0.1", .job_key = ""});
      const int port = server->port();
      for (int r = 0; r < readers; ++r) TUTTI_CHECK_ENV(write(ports[1], &port, sizeof port) == sizeof port, "no pipe");
    };
    const auto rank_main = [&](int rank) {
      int port = 0;
      if (run.serves_store && rank == 0) {
        serve(kRanks - 1);
        port = server->port();
      } else {
        TUTTI_CHECK_ENV(read(ports[0], &port, sizeof port) == sizeof port, "no pipe");
      }
      if (run.transport == "hier") setenv("TUTTI_HOST_ID", fmt::format("host {}", rank / 2).c_str(), 1);
      setenv("TUTTI_TRANSPORT", run.transport.c_str(), 1);  // of the groups made later, too: the best one would be shm
      RankContext context({.rank = rank, .world_size = kRanks, .threads = 1});
      const RankContext::Scope scope(context);
      const auto store =
          std::make_shared<DyingStore>(std::make_shared<TcpStore>(TcpStoreOptions{.port = port, .job_key = ""}));
      if (rank == run.victim && run.arm) run.arm(*store);
      const auto world = init_process_group(
          {.store = store,
           .rank = rank,
           .world_size = kRanks,
           .group = {.name = "all", .transport = run.transport, .timeout = std::chrono::minutes(1)}});
      if (run.then) run.then(*world, *store);
      if (rank == run.victim) raise(SIGKILL);
      world->barrier();
    };
    const auto results = fork_processes(kRanks, rank_main,
                                        {.limit = std::chrono::seconds(20),
                                         .before_start =
                                             [&] {
                                               if (!run.serves_store) serve(kRanks);
                                             },
                                         .meanwhile =
                                             [&](const std::vector<pid_t>& pids) {
                                               victim_pid = pids[static_cast<size_t>(run.victim)];
                                               if (run.meanwhile) run.meanwhile(pids);
                                             }});
    for (int r = 0; r < kRanks; ++r) {
      const ForkedResult& result = results[static_cast<size_t>(r)];
      if (r == run.victim) {
        EXPECT_TRUE(WIFSIGNALED(result.wait_status) && WTERMSIG(result.wait_status) == SIGKILL)
            << result.wait_status << " " << result.error;
        continue;
      }
      const auto says = [&](const std::string& part) { return result.error.find(part) != std::string::npos; };
      EXPECT_EQ(result.wait_status, 0) << "rank " << r << " hung";
      EXPECT_TRUE(says(fmt::format("rank {} (pid {} on ", run.victim, victim_pid)))
          << "rank " << r << ": " << result.error;
      const bool made = says("while the group '") && says("' was made");
      EXPECT_TRUE(made || (!in_the_making &&
                           (says("waited for it in barrier #") || says("waited for it in all_gather_bytes #0"))))
          << "rank " << r << ": " << result.error;
    }
  }
  EXPECT_EQ(left_behind(before), "");
}

void make_again(ProcessGroup&) {
  new_group(kEveryone, {.name = "again", .timeout = std::chrono::minutes(1)})->barrier();
}
void split_again(ProcessGroup& world) {
  world.split(kEveryone, {.name = "again", .timeout = std::chrono::minutes(1)})->barrier();
}
void merge_again(ProcessGroup&) {
  merge({3, 1}, {2, 0}, {.name = "again", .timeout = std::chrono::minutes(1)})->barrier();
}
void shrink_again(ProcessGroup& world) {
  world.shrink({}, {.name = "again", .timeout = std::chrono::minutes(1)})->barrier();
}

std::vector<std::string> transports_made_together() { return transports_with("death while made"); }

// The victim: rank 0, which makes the memory where it is shared, and another one.
class KilledWhileMade : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 public:
  static std::string transport() { return std::get<0>(GetParam()); }
  static int victim() { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Over, KilledWhileMade,
                         ::testing::Combine(::testing::ValuesIn(transports_made_together()), ::testing::Values(0, 2)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), std::get<1>(info.param));
                         });

TEST_P(KilledWhileMade, ARankOfANewGroupIsNamed) {
  const auto call = [&](int die_at, void (*make)(ProcessGroup&)) {
    return Scene{.transport = transport(),
                 .victim = victim(),
                 .then = [=, who = victim()](ProcessGroup& world, DyingStore& store) {
                   world.barrier();
                   if (world.rank() == who) store.arm(die_at);
                   make(world);
                 }};
  };
  const int calls = transport() == "shm" ? 3 : 12;  // more than are made: then it dies in the first call of the group
  for (int die_at = 1; die_at <= calls; ++die_at) {
    expect_named(fmt::format("new_group, at call {} of the store", die_at), call(die_at, make_again), die_at == 1);
  }
  expect_named("split", call(1, split_again), true);
  expect_named("merge", call(1, merge_again), true);
  expect_named("shrink", call(1, shrink_again), true);
}

TEST_P(KilledWhileMade, ARankThatNeverCallsIsNamed) {
  expect_named("new_group",
               {.transport = transport(),
                .victim = victim(),
                .then =
                    [who = victim()](ProcessGroup& world, DyingStore&) {
                      world.barrier();
                      if (world.rank() == who) raise(SIGKILL);
                      make_again(world);
                    }},
               true);
}

TEST(KilledWithTheStore, TheRankThatServesTheStoreIsNamed) {
  for (const std::string& transport : transports_with("death with the store")) {
    expect_named("new_group",
                 {.transport = transport,
                  .victim = 0,
                  .then =
                      [](ProcessGroup& world, DyingStore& store) {
                        world.barrier();
                        if (world.rank() == 0) store.arm(1);
                        make_again(world);
                      },
                  .serves_store = true},
                 true);
  }
}

TEST_P(KilledWhileMade, ARankOfTheWorldIsNamedOnceItHasCome) {
  for (int die_at = 1; die_at <= 8; ++die_at) {
    expect_named(
        fmt::format("init_process_group, at call {} of the store", die_at),
        {.transport = transport(), .victim = victim(), .arm = [=](DyingStore& store) { store.arm_at_append(die_at); }},
        die_at <= 3);
  }
}

class KilledAtAnyMoment : public KilledWhileMade {};
INSTANTIATE_TEST_SUITE_P(Over, KilledAtAnyMoment,
                         ::testing::Combine(::testing::ValuesIn(transports_made_together()), ::testing::Values(0, 2)),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param), std::get<1>(info.param));
                         });

TEST_P(KilledAtAnyMoment, ARankIsNamed) {
  std::mt19937 random(static_cast<unsigned>(victim()) + 1);
  const int runs = transport() == "shm" ? 10 : 4;
  for (int i = 0; i < runs; ++i) {
    const auto delay = std::chrono::microseconds(20'000 + random() % 20'000);
    int made[2];
    ASSERT_EQ(pipe(made), 0);
    const Scene run{.transport = transport(),
                    .victim = victim(),
                    .then =
                        [&](ProcessGroup& world, DyingStore&) {
                          world.barrier();
                          if (world.rank() == 0) TUTTI_CHECK_ENV(write(made[1], "!", 1) == 1, "no pipe");
                          std::vector<std::shared_ptr<ProcessGroup>> groups;
                          while (true) groups.push_back(new_group(kEveryone, {.timeout = std::chrono::minutes(1)}));
                        },
                    .meanwhile =
                        [&](const std::vector<pid_t>& pids) {
                          char there = 0;
                          ASSERT_EQ(read(made[0], &there, 1), 1);
                          std::this_thread::sleep_for(delay);
                          kill(pids[static_cast<size_t>(victim())], SIGKILL);
                        }};
    expect_named(fmt::format("run {}, {} us after the first", i, delay.count()), run, true);
    close(made[0]);
    close(made[1]);
  }
}

TEST(RollCall, NamesTheRanksThatDoNotCome) {
  HashStore store;
  std::jthread other(
      [&] { EXPECT_THROW(call_roll(store, "k", "all", 2, 4, std::chrono::milliseconds(150)), StoreTimeout); });
  try {
    call_roll(store, "k", "all", 0, 4, std::chrono::milliseconds(150));
    FAIL();
  } catch (const StoreTimeout& error) {
    EXPECT_STREQ(error.what(), "group 'all': ranks 1, 3 of 4 did not come within 150 ms (store this process)");
  }
}

// Otherwise they would wait for it until their deadlines while it waits for them in its next world, and so on from one
// world to the next.
TEST(RollCall, RanksThatComeAfterOneHasGivenUpAreToldAtOnce) {
  const auto store = std::make_shared<HashStore>();
  const auto open = [&](int rank, std::chrono::milliseconds timeout) {
    RankContext context({.rank = rank, .world_size = 2, .threads = 1});
    const RankContext::Scope scope(context);
    init_process_group({.store = store,
                        .rank = rank,
                        .world_size = 2,
                        .group = {.name = "all", .timeout = timeout},
                        .dump_signal = false});
  };
  EXPECT_THROW(open(0, std::chrono::milliseconds(50)), StoreTimeout);
  const auto came = std::chrono::steady_clock::now();
  try {
    open(1, std::chrono::minutes(1));
    FAIL();
  } catch (const PeerError& error) {
    EXPECT_STREQ(error.what(),
                 "group 'all': rank 0 has given up: group 'all': ranks 1 of 2 did not come within 50 ms (store this "
                 "process)");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - came, std::chrono::seconds(10));
}

// Two ranks of three think that they are two. Whoever comes first: each rank that still waits and each that comes later
// is told which ranks differ.
TEST(RollCall, RanksThatGiveDifferentWorldSizesAreToldAtOnce) {
  using std::chrono::seconds;
  for (const bool is_late : {false, true}) {
    SCOPED_TRACE(is_late ? "the third comes late" : "the third comes first");
    HashStore store;
    const auto came = std::chrono::steady_clock::now();
    std::atomic<int> refused{0};
    const auto call = [&](int rank, int size) {
      try {
        call_roll(store, "k", "all", rank, size, seconds(30));
      } catch (const UsageError& error) {
        ++refused;
        EXPECT_STREQ(
            error.what(),
            is_late
                ? "group 'all': the ranks give different numbers of ranks: rank 0 gives 2, rank 2 gives 3 (store this "
                  "process). All ranks of a job must give the same world_size"
                : "group 'all': the ranks give different numbers of ranks: rank 2 gives 3, rank 0 gives 2 (store this "
                  "process). All ranks of a job must give the same world_size");
      }
    };
    const auto wait_for_it = [&](int rank) {
      while (store.get("k/sizes").find(fmt::format("{} ", rank)) == std::string::npos) std::this_thread::yield();
    };
    if (is_late) {
      {
        std::jthread zero([&] { call(0, 2); });
        wait_for_it(0);
        call(1, 2);
      }
      call(2, 3);
      EXPECT_EQ(refused, 1);
    } else {
      std::jthread two([&] { call(2, 3); });
      wait_for_it(2);
      call(0, 2);
      two.join();
      EXPECT_EQ(refused, 2);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - came, seconds(15));
  }
}

}  // namespace
}  // namespace tutti::comm
