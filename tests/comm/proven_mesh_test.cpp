#include "tutti/comm/gloo/proven_mesh.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/transport_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

// The meshes of a group's ranks, all in this thread.
class Meshes {
 public:
  explicit Meshes(int size, const std::function<std::string(int)>& key = [](int) { return "sixteen bytes!!!"; }) {
    for (int r = 0; r < size; ++r)
      of.push_back(std::make_unique<ProvenMesh>(
          MeshPlan{.group = "g", .job_key = key(r), .rank = r, .size = size, .address = "127.0.0.1"}));
  }
  void connect() {
    std::vector<std::string> cards;
    for (const auto& mesh : of) cards.push_back(mesh->card());
    for (const auto& mesh : of) mesh->connect(cards);
  }
  // True when all are complete; false as soon as one has failed.
  bool serve(const std::function<void()>& meanwhile = [] {}) {
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (std::chrono::steady_clock::now() < until) {
      bool are_complete = true;
      for (const auto& mesh : of) {
        are_complete &= mesh->serve(1ms);
        if (mesh->failure()) return false;
      }
      if (are_complete) return true;
      meanwhile();
    }
    return false;
  }
  // Every pair of ranks has one connection, whose ends are theirs.
  void expect_joined() {
    std::vector<std::vector<UniqueFd>> all;
    for (const auto& mesh : of) all.push_back(mesh->take());
    for (size_t a = 0; a < all.size(); ++a) {
      for (size_t b = 0; b < all.size(); ++b) {
        if (a == b) continue;
        const auto sent = static_cast<char>('a' + a);
        ASSERT_EQ(send(all[a][b].get(), &sent, 1, MSG_NOSIGNAL), 1) << a << " to " << b;
      }
    }
    for (size_t a = 0; a < all.size(); ++a) {
      for (size_t b = 0; b < all.size(); ++b) {
        char bytes[8] = {};
        if (a != b) {
          EXPECT_EQ(recv(all[b][a].get(), bytes, sizeof bytes, 0), 1);
          EXPECT_EQ(bytes[0], static_cast<char>('a' + a));
        }
      }
    }
  }

  std::vector<std::unique_ptr<ProvenMesh>> of;
};

TcpEndpoint endpoint_of(const ProvenMesh& mesh) {
  return tcp_endpoint("127.0.0.1", std::atoi(mesh.card().c_str() + mesh.card().find(' ')));
}

// Strangers of all kinds, connected to one rank.
class Strangers {
 public:
  void come_to(const ProvenMesh& mesh) {
    const TcpEndpoint endpoint = endpoint_of(mesh);
    const char* sayings[] = {"", "GET / HTTP/1.0\r\n\r\n", "\xff\xff\xff\xff\xff\xff\xff\xff\xff", "tutti gloo 1\n\1",
                             "tutti gloo 1\n\1\0\0\0"};
    for (const char* said : sayings) {
      UniqueFd fd = begin_connecting(endpoint);
      if (send(fd.get(), said, std::string_view(said).size(), MSG_NOSIGNAL) >= 0) ++said_;
      silent_.push_back(std::move(fd));
    }
    UniqueFd leaver = begin_connecting(endpoint);
    liars_.push_back(PeerGreeting::connecting(begin_connecting(endpoint), 1, "not the key"));
    liars_.push_back(PeerGreeting::connecting(begin_connecting(endpoint), 77, "not the key"));
  }
  // The liars go on with what they say.
  void talk() {
    for (PeerGreeting& liar : liars_) EXPECT_NE(liar.advance(), PeerGreeting::State::kProven);
  }
  int said() const { return said_; }

 private:
  std::vector<UniqueFd> silent_;
  std::deque<PeerGreeting> liars_;
  int said_ = 0;
};

TEST(ProvenMesh, JoinsEveryPairOfRanks) {
  for (const int size : {1, 2, 3, 8}) {
    Meshes meshes(size);
    meshes.connect();
    ASSERT_TRUE(meshes.serve()) << size;
    meshes.expect_joined();
  }
}

TEST(ProvenMesh, StrangersAtEveryMomentAreDropped) {
  Meshes meshes(3);
  Strangers strangers;
  strangers.come_to(*meshes.of[0]);  // before the ranks connect
  meshes.of[0]->serve(20ms);
  strangers.talk();
  meshes.connect();
  int rounds = 0;
  ASSERT_TRUE(meshes.serve([&] {
    if (rounds++ < 20) strangers.come_to(*meshes.of[1]);
    strangers.talk();
  }));
  EXPECT_GT(strangers.said(), 0);
  meshes.expect_joined();
  // Nobody listens any more.
  const UniqueFd late = begin_connecting(endpoint_of(*meshes.of[0]));
  int error = errno;
  socklen_t length = sizeof error;
  if (late) getsockopt(late.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  EXPECT_EQ(error, ECONNREFUSED);
}

TEST(ProvenMesh, ThoseWhoHoldMoreConnectionsThanAreAllowedDoNotKeepRanksOut) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit before = limit;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
  // Both ends of each are in this process. Where it may not have so many descriptors, lacking them bounds what a rank
  // holds.
  const int strangers = static_cast<int>(std::min<rlim_t>(1200, limit.rlim_cur / 2 - 20));
  setrlimit(RLIMIT_NOFILE, &limit);
  {
    Meshes meshes(2);
    const TcpEndpoint endpoint = endpoint_of(*meshes.of[0]);
    std::vector<UniqueFd> idle;
    for (int i = 0; i < strangers; ++i) {
      idle.push_back(begin_connecting(endpoint));
      if (i % 50 == 0) meshes.of[0]->serve(0ms);
    }
    meshes.connect();
    ASSERT_TRUE(meshes.serve());
    EXPECT_SAYS(meshes.of[0]->troubles(), "connections of strangers were dropped", "it was the slowest of too many");
    meshes.expect_joined();
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

// In a process of its own: what a process may open can be taken back, but not be given again.
TEST(ProvenMesh, SomeDescriptorsOfTheProcessAreNotForStrangers) {
  const auto results =
      fork_processes(1,
                     [](int) {
                       Meshes meshes(2);
                       std::vector<UniqueFd> strangers;
                       for (int i = 0; i < 200; ++i) strangers.push_back(begin_connecting(endpoint_of(*meshes.of[0])));
                       const auto limit = static_cast<rlim_t>(strangers.back().get()) + 1 + 64 + 40;
                       const rlimit both{.rlim_cur = limit, .rlim_max = limit};
                       TUTTI_CHECK(setrlimit(RLIMIT_NOFILE, &both) == 0, "no limit");
                       meshes.of[0]->serve(100ms);
                       EXPECT_SAYS(meshes.of[0]->troubles(), "it was the slowest of too many");
                       std::vector<UniqueFd> others;
                       for (int i = 0; i < 60; ++i) {
                         others.push_back(UniqueFd(dup(0)));
                         TUTTI_CHECK(others.back(), "descriptor {} of 60 is not there", i);
                       }
                       others.clear();
                       meshes.connect();
                       TUTTI_CHECK(meshes.serve(), "the ranks were kept out: {}", meshes.of[0]->troubles());
                       TUTTI_CHECK(!testing::Test::HasFailure(), "another trouble: {}", meshes.of[0]->troubles());
                       meshes.expect_joined();
                     },
                     {.limit = 20s});
  EXPECT_TRUE(results[0].succeeded()) << results[0].error;
}

TEST(ProvenMesh, RanksAreNotKeptOutWhereFewDescriptorsAreLeft) {
  const auto results =
      fork_processes(1,
                     [](int) {
                       Meshes meshes(3);
                       std::vector<UniqueFd> taken;
                       for (int i = 0; i < 150; ++i) taken.push_back(UniqueFd(dup(0)));
                       const auto limit = static_cast<rlim_t>(taken.back().get()) + 1 + 30;
                       const rlimit both{.rlim_cur = limit, .rlim_max = limit};
                       TUTTI_CHECK(setrlimit(RLIMIT_NOFILE, &both) == 0, "no limit");
                       meshes.connect();
                       TUTTI_CHECK(meshes.serve(), "the ranks were kept out: {}", meshes.of[0]->troubles());
                       meshes.expect_joined();
                     },
                     {.limit = 20s});
  EXPECT_TRUE(results[0].succeeded()) << results[0].error;
}

TEST(ProvenMesh, WithoutADescriptorItSaysSo) {
  const auto results =
      fork_processes(1,
                     [](int) {
                       Meshes meshes(2);
                       const UniqueFd caller = begin_connecting(endpoint_of(*meshes.of[0]));
                       std::vector<UniqueFd> taken;
                       const rlimit few{.rlim_cur = 60, .rlim_max = 60};
                       TUTTI_CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0, "no limit");
                       while (taken.empty() || taken.back()) taken.push_back(UniqueFd(dup(0)));
                       meshes.of[0]->serve(300ms);
                       const std::string troubles = meshes.of[0]->troubles();
                       meshes.connect();
                       meshes.of[1]->serve(300ms);
                       throw EnvironmentError(troubles + (meshes.of[1]->failure() ? meshes.of[1]->failure()->why : ""));
                     },
                     {.limit = 20s});
  EXPECT_SAYS(results[0].error, "this process had no descriptor left for a connection: raise 'ulimit -n'",
              "Too many open files, because this process has no descriptor left: raise 'ulimit -n'");
}

TEST(ProvenMesh, ARankWithAnotherKeyLearnsThat) {
  Meshes meshes(2, [](int rank) { return rank == 0 ? "sixteen bytes!!!" : "other 16 bytes!!"; });
  meshes.connect();
  EXPECT_FALSE(meshes.serve());
  const auto& failure = meshes.of[1]->failure();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->rank, 0);
  EXPECT_TRUE(failure->has_other_key);
  EXPECT_SAYS(meshes.of[0]->troubles(), "1 connections of strangers were dropped",
              "which calls itself rank 1: it has another job key");
}

TEST(ProvenMesh, AnAddressThatCannotBeReachedFailsAtOnce) {
  for (const char* address : {"255.255.255.255", "224.0.0.1"}) {
    ProvenMesh mesh({.group = "g", .rank = 1, .size = 2, .address = "127.0.0.1"});
    mesh.connect({fmt::format("{} 4711 secret", address), ""});
    EXPECT_FALSE(mesh.serve(1s));
    ASSERT_TRUE(mesh.failure()) << address;
    EXPECT_SAYS(mesh.failure()->why, "Network is unreachable");
    EXPECT_EQ(mesh.meeting_point(0), fmt::format("{}:4711", address));
  }
}

TEST(ProvenMesh, WhereNobodyListensItFailsAtOnce) {
  std::string card;
  {
    const ProvenMesh gone({.group = "g", .rank = 0, .size = 2, .address = "127.0.0.1"});
    card = gone.card();
  }
  ProvenMesh mesh({.group = "g", .rank = 1, .size = 2, .address = "127.0.0.1"});
  mesh.connect({card, ""});
  EXPECT_FALSE(mesh.serve(5s));
  ASSERT_TRUE(mesh.failure());
  EXPECT_SAYS(mesh.failure()->why, "Connection refused");
}

TEST(ProvenMesh, OneThatIsDroppedTriesAgain) {
  const UniqueFd listener = listen_at(tcp_endpoint("127.0.0.1", 0));
  ProvenMesh mesh({.group = "g", .rank = 1, .size = 2, .address = "127.0.0.1"});
  const std::string address = near_end(listener.get());
  mesh.connect({fmt::format("127.0.0.1 {} secret", address.substr(address.find(':') + 1)), ""});
  int seen = 0;
  for (int i = 0; i < 50 && seen < 3; ++i) {
    EXPECT_FALSE(mesh.serve(10ms));
    const UniqueFd caller(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    seen += static_cast<bool>(caller) ? 1 : 0;
  }
  EXPECT_EQ(seen, 3);
  EXPECT_FALSE(mesh.failure());
  EXPECT_SAYS(mesh.troubles(), fmt::format("the last connection to {} failed", address));
}

TEST(ProvenMesh, WhatIsNoAddressIsAnError) {
  for (const char* card : {"", "127.0.0.1", "127.0.0.1 80", "somewhere 80 secret", "127.0.0.1 80 "}) {
    ProvenMesh mesh({.group = "g", .rank = 1, .size = 2, .address = "127.0.0.1"});
    try {
      mesh.connect({card, ""});
      ADD_FAILURE() << card;
    } catch (const EnvironmentError& error) {
      EXPECT_SAYS(error.what(), "what the store has for rank 0 is no address");
    }
  }
}

TEST(ProvenMesh, AnAddressOfAnotherHostCannotBeListenedOn) {
  try {
    ProvenMesh({.group = "g", .rank = 0, .size = 2, .address = "198.51.100.7"});
    ADD_FAILURE();
  } catch (const EnvironmentError& error) {
    EXPECT_SAYS(error.what(), "cannot listen on 198.51.100.7");
  }
}

}  // namespace
}  // namespace tutti::comm
