// Ranks over gloo among strangers, with other keys, and where peers cannot be reached.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/transport_ranks.h"
#include "tests/job/support/run_command.h"
#include "tutti/comm/gloo/handover.h"
#include "tutti/comm/gloo/peer_greeting.h"
#include "tutti/comm/gloo/proven_mesh.h"
#include "tutti/comm/gloo/tcp_endpoint.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/job/host/host_identity.h"
#include "tutti/job/store/file_store.h"
#include "tutti/job/store/hash_store.h"
#include "tutti/job/store/prefix_store.h"
#include "tutti/job/store/store_meeting.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

GroupSeat seat(const std::shared_ptr<Store>& store, int rank, int size, std::chrono::milliseconds limit = 20s) {
  GroupSeat s;
  s.name = "wire";
  s.key = "g";
  s.rank = rank;
  s.size = size;
  s.store = store;
  s.identities.assign(static_cast<size_t>(size), PeerIdentity{});
  s.deadline = Clock::now() + limit;
  return s;
}

// Connects to ranks as soon as they listen and until they do no more, and says all that a stranger may say.
class Strangers {
 public:
  Strangers() { EXPECT_EQ(pipe2(addresses_, O_NONBLOCK), 0); }
  ~Strangers() {
    stop();
    close(addresses_[0]);
    close(addresses_[1]);
  }
  // In the process of a rank: where it listens, as it tells the others.
  void tell(const std::string& card) const {
    const std::string line = card.substr(0, card.rfind(' ')) + "\n";
    TUTTI_CHECK(write(addresses_[1], line.data(), line.size()) == static_cast<ssize_t>(line.size()), "no pipe");
  }
  void begin() {
    thread_ = std::thread([this] {
      while (!stopping_) {
        hear();
        std::erase_if(ranks_, [this](const TcpEndpoint& rank) { return !come_to(rank); });
        usleep(1000);
      }
    });
  }
  // Returns how many were connected.
  int stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
    return came_;
  }

 private:
  void hear() {
    char bytes[1024];
    const ssize_t got = read(addresses_[0], bytes, sizeof bytes);
    if (got > 0) heard_.append(bytes, static_cast<size_t>(got));
    for (size_t end; (end = heard_.find('\n')) != std::string::npos; heard_.erase(0, end + 1)) {
      const size_t space = heard_.find(' ');
      ranks_.push_back(tcp_endpoint(heard_.substr(0, space), std::atoi(heard_.c_str() + space)));
    }
  }
  // False when nobody listens there.
  bool come_to(const TcpEndpoint& endpoint) {
    for (const std::string& said : {std::string(), std::string(300, '\xff'), std::string("tutti gloo 1\n\0", 14),
                                    std::string("tutti gloo 1\n") + std::string(100, '\1')}) {
      UniqueFd fd = begin_connecting(endpoint);
      if (!fd || ends_of(fd.get()).empty()) return false;
      if (send(fd.get(), said.data(), said.size(), MSG_NOSIGNAL) >= 0) ++came_;
      held_.push_back(std::move(fd));
    }
    for (int i = 0; i < 100; ++i) begin_connecting(endpoint);
    PeerGreeting liar = PeerGreeting::connecting(begin_connecting(endpoint), 1, "no key of theirs");
    for (int i = 0; i < 5 && liar.advance() == PeerGreeting::State::kUnderWay; ++i) usleep(100);
    if (held_.size() > 300) held_.erase(held_.begin(), held_.begin() + 150);
    return true;
  }

  int addresses_[2] = {-1, -1};
  std::thread thread_;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> came_ = 0;
  std::string heard_;
  std::vector<TcpEndpoint> ranks_;
  std::vector<UniqueFd> held_;
};

// Strangers hear first where a rank listens. One rank tells the others late, so that they listen for a while.
class OverheardStore final : public PrefixStore {
 public:
  OverheardStore(std::shared_ptr<Store> store, const Strangers& strangers)
      : PrefixStore("job", std::move(store)), strangers_(strangers) {}
  void set(std::string_view key, std::string_view value) override {
    if (key.find("/gloo/addresses/rank/") != std::string_view::npos && !value.empty()) {
      strangers_.tell(std::string(value));
      if (key.ends_with("/2")) std::this_thread::sleep_for(100ms);
    }
    PrefixStore::set(key, value);
  }

 private:
  const Strangers& strangers_;
};

TEST(GlooStrangers, WhatTheySendAtAnyMomentDisturbsNoRank) {
  for (const char* transport : {"gloo", "hier"}) {
    Strangers strangers;
    const std::string path = fresh_path("tutti-gloo-strangers");
    const auto results = fork_processes(4,
                                        [&](int rank) {
                                          if (std::string_view(transport) == "hier")
                                            setenv("TUTTI_HOST_ID", std::to_string(rank / 2).c_str(), 1);
                                          const auto store = std::make_shared<OverheardStore>(
                                              std::make_shared<FileStore>(path), strangers);
                                          for (const char* key : {"first", "second"}) {
                                            GroupSeat own = seat(store, rank, 4, 30s);
                                            own.key = key;
                                            const auto t = make_transport(transport, own);
                                            check_rounds(*t, 5, 20, 200'000);
                                            check_messages(*t, 6);
                                          }
                                        },
                                        {.limit = 60s, .before_start = [&] { strangers.begin(); }});
    unlink(path.c_str());
    EXPECT_GT(strangers.stop(), 20) << transport;
    for (const ForkedResult& r : results)
      EXPECT_TRUE(r.succeeded()) << transport << ": " << r.error << " " << r.wait_status;
  }
}

TEST(GlooStrangers, RanksOfOneHostUseTheLoopbackAndNobodyListensWhenTheGroupIsUp) {
  const auto results =
      run_world(3,
                [](ProcessGroup& world) {
                  int connections = 0;
                  for (int fd = 0; fd < 1000; ++fd) {
                    const std::string address = near_end(fd);
                    if (address.empty()) continue;
                    TUTTI_CHECK(!ends_of(fd).empty(), "something listens on {}", address);
                    TUTTI_CHECK(address.starts_with("127.0.0.1:"), "a connection uses {}", address);
                    ++connections;
                  }
                  TUTTI_CHECK(connections >= 3, "{} connections: that to the store and those to two ranks are expected",
                              connections);
                  world.barrier();
                },
                {.transport = "gloo", .limit = 30s});
  for (const ForkedResult& r : results) EXPECT_TRUE(r.succeeded()) << r.error;
}

TEST(GlooStrangers, ARankWithAnotherJobKeyIsRefusedAndNamed) {
  const std::string path = fresh_path("tutti-gloo-keys");
  const auto results =
      fork_processes(3,
                     [&](int rank) {
                       setenv("TUTTI_JOB_KEY", rank == 1 ? "the key of another job" : "the key of this job here", 1);
                       make_transport("gloo", seat(std::make_shared<FileStore>(path), rank, 3));
                     },
                     {.limit = 30s});
  unlink(path.c_str());
  for (const ForkedResult& r : results)
    EXPECT_SAYS(r.error, "another job key than rank", "all ranks need the same TUTTI_JOB_KEY (or TUTTI_JOB_KEY_FILE)");
}

// Rank 1 of two, where rank 0 gives `card` for its address.
std::string error_with_card(const std::string& card, std::chrono::milliseconds limit) {
  const auto store = std::make_shared<HashStore>();
  std::thread other([&] {
    const auto meet = [&](const char* what, const std::string& value) {
      const StoreMeeting meeting{.store = *store,
                                 .key = fmt::format("g/gloo/{}", what),
                                 .alarm = "g/gloo/alarm",
                                 .rank = 0,
                                 .size = 2,
                                 .deadline = Clock::now() + 10s};
      meet_in_store(meeting, value, [](const std::vector<int>&) { throw std::runtime_error("late"); });
    };
    meet("hosts", host_identity());
    meet("addresses", card);
  });
  std::string said = "no error";
  try {
    make_transport("gloo", seat(store, 1, 2, limit));
  } catch (const Error& error) {
    said = error.what();
  }
  other.join();
  return said;
}

TEST(GlooStrangers, AnAddressThatCannotBeReachedIsNamedAtOnce) {
  const auto begin = Clock::now();
  EXPECT_SAYS(error_with_card("255.255.255.255 4711 secret", 20s),
              "rank 0 is gone or out of reach while the group 'wire' was made",
              "the connection of rank 1 to rank 0 at 255.255.255.255:4711 failed: Network is unreachable");
  EXPECT_LT(Clock::now() - begin, 5s);
  EXPECT_SAYS(error_with_card("nonsense", 20s), "group 'wire': what the store has for rank 0 is no address");
}

TEST(GlooStrangers, AHostWithoutLoopbackIsToldToBringItUp) {
  const auto results = fork_processes(2,
                                      [](int rank) {
                                        TUTTI_CHECK(unshare(CLONE_NEWNET) == 0, "no network namespace");
                                        if (rank == 1) {
                                          hand_over_to_gloo(0, std::vector<UniqueFd>(2));
                                          return;
                                        }
                                        ProvenMesh mesh({.group = "g", .rank = 1, .size = 2, .address = "127.0.0.1"});
                                        mesh.connect({"127.0.0.1 4711 secret", ""});
                                        mesh.serve(5s);
                                        throw EnvironmentError(mesh.failure() ? mesh.failure()->why : "no failure");
                                      },
                                      {.limit = 20s});
  EXPECT_SAYS(results[0].error,
              "Network is unreachable, because the loopback interface of this host or container is down; bring it up: "
              "ip link set lo up");
  EXPECT_SAYS(results[1].error,
              "gloo needs the loopback interface of this host or container, which is down or has no address; bring it "
              "up: ip link set lo up");
}

TEST(GlooStrangers, AnAddressThatDoesNotAnswerIsNamedByTheDeadline) {
  const UniqueFd listener = listen_at(tcp_endpoint("127.0.0.1", 0));
  const std::string address = near_end(listener.get());
  const std::string card = fmt::format("127.0.0.1 {} secret", address.substr(address.find(':') + 1));
  EXPECT_SAYS(
      error_with_card(card, 300ms),
      fmt::format(
          "group 'wire' was not made by the deadline: the connection of rank 1 to rank 0 at {} does not come about",
          address));
}

TEST(GlooStrangers, AStrangerInTheRanksPlaceIsNamed) {
  const UniqueFd listener = listen_at(tcp_endpoint("127.0.0.1", 0));
  const std::string address = near_end(listener.get());
  std::atomic<bool> is_over = false;
  std::thread stranger([&] {
    std::vector<UniqueFd> callers;
    while (!is_over) {
      UniqueFd caller(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!caller) {
        usleep(1000);
        continue;
      }
      const std::string answers = std::string(32, 'n') + '\1' + std::string(32, 'p');
      send(caller.get(), answers.data(), answers.size(), MSG_NOSIGNAL);
      callers.push_back(std::move(caller));
    }
  });
  EXPECT_SAYS(error_with_card(fmt::format("127.0.0.1 {} secret", address.substr(address.find(':') + 1)), 20s), address,
              "whoever answers there does not know the job key");
  is_over = true;
  stranger.join();
}

}  // namespace
}  // namespace tutti::comm
