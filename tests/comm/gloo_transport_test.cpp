#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/transport_ranks.h"
#include "tests/job/support/run_command.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/job/store/hash_store.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

bool has_gloo() {
  for (const TransportInfo& info : known_transports()) {
    if (info.name == "gloo") return info.available;
  }
  return false;
}

GroupSeat seat(const std::shared_ptr<Store>& store, int rank, int size, std::string key = "g") {
  GroupSeat s;
  s.name = "wire";
  s.key = std::move(key);
  s.rank = rank;
  s.size = size;
  s.store = store;
  s.deadline = Clock::now() + 20s;
  return s;
}

MakeTransport over_gloo(int size) {
  const auto store = std::make_shared<HashStore>();
  return [=](int rank) { return make_transport("gloo", seat(store, rank, size)); };
}

std::string error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(GlooTransport, RoundsAndMessagesBringTheRightBytes) {
  if (!has_gloo()) return EXPECT_SAYS(error_of([] { over_gloo(1)(0); }), "gloo", "not part of this build");
  for (const int ranks : {1, 2, 3, 5}) {
    expect_on_ranks(ranks, over_gloo(ranks), [](Transport& t) {
      check_rounds(t, 7, 12, 1'000'000);
      check_messages(t, 3);
    });
  }
}

TEST(GlooTransport, WhatWasSentBeforeLeavingArrives) {
  if (!has_gloo()) return;
  for (int i = 0; i < 10; ++i) {
    expect_on_ranks(3, over_gloo(3), [](Transport& t) {
      if (t.rank() == 2) std::this_thread::sleep_for(5ms);
      for (int64_t n = 1; n <= 3; ++n) exchange_one_block(t, tensor_call(n, 200'000), 200'000);
    });
  }
}

TEST(GlooTransport, MismatchIsNamedAndTheGroupGoesOn) {
  if (!has_gloo()) return;
  expect_on_ranks(2, over_gloo(2), [](Transport& t) {
    EXPECT_SAYS(error_of([&] { exchange_one_block(t, tensor_call(1, 8 + t.rank()), 8 + t.rank()); }), "shapes differ",
                "rank 1 called");
    exchange_one_block(t, tensor_call(2, 8), 8);
  });
}

TEST(GlooTransport, MissingPeerIsNamedByTheDeadline) {
  if (!has_gloo()) return;
  GroupSeat s = seat(std::make_shared<HashStore>(), 0, 2);
  s.deadline = Clock::now() + 200ms;
  s.identities = {{1, "here"}, {4711, "there"}};
  EXPECT_SAYS(error_of([&] { make_transport("gloo", s); }),
              "group 'wire' was not made by the deadline: rank 1 (pid 4711 on there) did not come");
}

TEST(GlooTransport, UnknownInterfaceListsThoseThereAre) {
  if (!has_gloo()) return;
  setenv("GLOO_SOCKET_IFNAME", "nosuch0", 1);
  EXPECT_SAYS(error_of([] { over_gloo(2)(0); }), "GLOO_SOCKET_IFNAME", "nosuch0", "lo");
  setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  expect_on_ranks(2, over_gloo(2), [](Transport& t) { exchange_one_block(t, barrier_call(1), 0); });
  unsetenv("GLOO_SOCKET_IFNAME");
}

// The ranks of transport_program as processes.
CommandResult gloo_ranks(int ranks, const std::string& what, const std::string& transport = "gloo") {
  const std::string store = fresh_path("tutti-gloo-test");
  std::string command;
  for (int r = 0; r < ranks; ++r) {
    command += fmt::format("timeout 60 {}/transport_program {} {} {} {} {} & ", TUTTI_BINARY_DIR, transport, what,
                           store, r, ranks);
  }
  CommandResult result = run_command("(" + command + "wait)");
  unlink(store.c_str());
  return result;
}

TEST(GlooTransport, ProcessesExchangeWhatTheyShould) {
  if (!has_gloo()) return;
  for (const char* what : {"rounds", "groups", "mismatch", "idle"}) {
    const CommandResult result = gloo_ranks(3, what);
    EXPECT_EQ(result.output.find("failed"), std::string::npos) << what << ": " << result.output;
  }
}

TEST(GlooTransport, HierFindsThatAllShareAHost) {
  if (!has_gloo()) return;
  const CommandResult result = gloo_ranks(3, "rounds", "hier");
  EXPECT_EQ(result.output, "");
}

TEST(GlooTransport, WhatWasSentIsThereWhenTheSenderIsGone) {
  if (!has_gloo()) return;
  for (const int count : {3, 40, 200}) {
    const auto results = run_world(2,
                                   [count](ProcessGroup& group) {
                                     Tensor t = Tensor::empty({256}, DType::f32);
                                     group.barrier();
                                     if (group.rank() == 0) {
                                       for (int i = 0; i < count; ++i) {
                                         t.data<float>()[0] = static_cast<float>(i);
                                         group.send(t, 1).wait();
                                       }
                                       return;
                                     }
                                     std::this_thread::sleep_for(200ms);
                                     for (int i = 0; i < count; ++i) {
                                       group.recv(t, 0).wait();
                                       TUTTI_CHECK(t.data<float>()[0] == static_cast<float>(i),
                                                   "message {} of {} holds {}", i, count, t.data<float>()[0]);
                                     }
                                   },
                                   {.transport = "gloo", .limit = 30s});
    for (const auto& r : results) EXPECT_TRUE(r.succeeded()) << count << ": " << r.error;
  }
}

TEST(GlooTransport, WithoutAStoreItSaysWhatItNeeds) {
  if (!has_gloo()) return;
  EXPECT_SAYS(error_of([] { make_transport("gloo", seat(nullptr, 0, 2)); }), "gloo needs a store");
}

}  // namespace
}  // namespace tutti::comm
