#include "tutti/comm/gloo/handover.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/support/transport_ranks.h"
#include "tutti/comm/gloo/gloo_engine.h"
#include "tutti/core/error.h"
#include "tutti/job/store/socket.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

// Both ends of a connection over TCP.
std::pair<UniqueFd, UniqueFd> connection() {
  const UniqueFd listener = listen_at(tcp_endpoint("127.0.0.1", 0));
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  UniqueFd near = begin_connecting({.address = address, .size = size});
  for (int i = 0; i < 1000; ++i) {
    UniqueFd far(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (far) return {std::move(near), std::move(far)};
    usleep(1000);
  }
  throw std::runtime_error("no connection");
}

struct TwoEngines {
  explicit TwoEngines(const ConnectToPair& connect = connect_to_pair) {
    auto [a, b] = connection();
    const std::string ends = ends_of(a.get());
    std::vector<UniqueFd> of_a(2), of_b(2);
    of_a[1] = std::move(a);
    of_b[0] = std::move(b);
    GlooMesh first = hand_over_to_gloo(0, std::move(of_a), connect),
             second = hand_over_to_gloo(1, std::move(of_b), connect);
    EXPECT_EQ(first.sockets[1].ends, ends);
    EXPECT_TRUE(first.sockets[1].is_open());
    EXPECT_FALSE(first.sockets[0].is_open());
    engines.push_back(make_gloo_engine(std::move(first), {}));
    engines.push_back(make_gloo_engine(std::move(second), {}));
  }
  void expect_messages() {
    for (const int from : {0, 1}) {
      const std::string said = "packet of rank " + std::to_string(from);
      const ConstBlock block{reinterpret_cast<const std::byte*>(said.data()), static_cast<int64_t>(said.size())};
      engines[static_cast<size_t>(from)]->send(1 - from, {&block, 1});
      MessageEngine& other = *engines[static_cast<size_t>(1 - from)];
      Packet packet;
      for (int i = 0; i < 200 && !other.take(packet); ++i) other.wait(50ms);
      ASSERT_NE(packet.memory, nullptr);
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(packet.memory.get()) + packet.start,
                            static_cast<size_t>(packet.bytes)),
                said);
      other.recycle(std::move(packet));
    }
  }
  std::vector<std::unique_ptr<MessageEngine>> engines;
};

TEST(GlooHandover, GlooUsesTheConnectionItIsGiven) {
  TwoEngines two;
  two.expect_messages();
}

// Whoever reaches the port of a pair first is what gloo accepts.
TEST(GlooHandover, AStrangerThatGlooAcceptsIsClosedUnread) {
  std::vector<UniqueFd> strangers;
  const std::string garbage(4096, '\xff');
  int said = 0;
  TwoEngines two([&](const sockaddr_storage& address) {
    for (int i = 0; i < 4; ++i) {  // more than the queue of the pair holds
      strangers.push_back(connect_to_pair(address));
      said += send(strangers.back().get(), garbage.data(), garbage.size(), MSG_NOSIGNAL) > 0 ? 1 : 0;
    }
    return connect_to_pair(address);
  });
  two.expect_messages();
  EXPECT_GE(said, 2);
  for (const UniqueFd& stranger : strangers) {
    char byte = 0;
    EXPECT_LE(recv(stranger.get(), &byte, 1, 0), 0) << "nobody answers it";
  }
}

// What a pair has accepted gives its port back when its other end is reset: pairs of other groups listen there at once.
TEST(GlooHandover, APortThatIsTakenAgainAtOnceIsNotMistakenForTheConnection) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<UniqueFd> takers;  // their descriptors have lower numbers than gloo's
    for (int i = 0; i < 2; ++i) takers.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    std::vector<std::jthread> threads;
    TwoEngines two([&](const sockaddr_storage& address) {
      threads.emplace_back([address, fd = takers[threads.size()].get()](const std::stop_token& stop) {
        while (!stop.stop_requested() &&
               bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(sockaddr_in)) != 0) {
        }
      });
      return connect_to_pair(address);
    });
    threads.clear();
    two.expect_messages();
  }
}

// What has the address of a pair and is not gloo's: a duplicate of its listener, a connection that was accepted there
// by somebody else, and a socket of UDP at a port of the same number. Their descriptors have lower numbers than gloo's.
struct Namesakes {
  Namesakes() {
    for (UniqueFd* fd : {&listener, &accepted, &datagrams}) *fd = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  void take_address(const sockaddr_storage& address) {
    const std::string name = to_text(address);
    int gloos = 0;
    while (near_end(gloos) != name) ASSERT_LT(++gloos, 1024) << "nothing is at " << name;
    ASSERT_LT(listener.get(), gloos);
    ASSERT_EQ(dup3(gloos, listener.get(), O_CLOEXEC), listener.get());
    stranger = connect_to_pair(address);
    const UniqueFd from_stranger(accept4(gloos, nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_EQ(dup3(from_stranger.get(), accepted.get(), O_CLOEXEC), accepted.get());
    const UniqueFd udp(socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const socklen_t size = address.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    ASSERT_EQ(bind(udp.get(), reinterpret_cast<const sockaddr*>(&address), size), 0) << strerror(errno);
    ASSERT_EQ(dup3(udp.get(), datagrams.get(), O_CLOEXEC), datagrams.get());
  }
  void expect_untouched() const {
    EXPECT_EQ(near_end(listener.get()), near_end(accepted.get()));
    EXPECT_EQ(send(accepted.get(), "x", 1, MSG_NOSIGNAL), 1) << strerror(errno);
    char byte = 0;
    pollfd waited{.fd = stranger.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&waited, 1, 5000), 1);
    EXPECT_EQ(recv(stranger.get(), &byte, 1, 0), 1) << strerror(errno);
    int type = 0;
    socklen_t size = sizeof type;
    EXPECT_EQ(getsockopt(datagrams.get(), SOL_SOCKET, SO_TYPE, &type, &size), 0) << strerror(errno);
    EXPECT_EQ(type, SOCK_DGRAM);
  }
  UniqueFd listener, accepted, datagrams, stranger;
};

TEST(GlooHandover, OtherDescriptorsWithTheAddressOfAPairAreLeftAlone) {
  Namesakes namesakes[2];
  size_t pair = 0;
  TwoEngines two([&](const sockaddr_storage& address) {
    namesakes[pair++].take_address(address);
    return connect_to_pair(address);
  });
  EXPECT_EQ(pair, 2u);
  two.expect_messages();
  for (const Namesakes& of_pair : namesakes) of_pair.expect_untouched();
}

TEST(GlooHandover, AStrangerThatIsAcceptedAndLeavesCostsOneMoreTry) {
  int tries = 0;
  TwoEngines two([&](const sockaddr_storage& address) {
    UniqueFd fd = connect_to_pair(address);
    if (++tries % 3 == 0) return fd;
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd.release());
    return UniqueFd();
  });
  EXPECT_EQ(tries, 6);
  two.expect_messages();
}

TEST(GlooHandover, OneThatIsNeverLeftAloneIsAnError) {
  int tries = 0;
  try {
    TwoEngines two([&](const sockaddr_storage& address) {
      ++tries;
      UniqueFd fd = connect_to_pair(address);
      const linger at_once{.l_onoff = 1, .l_linger = 0};
      setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
      close(fd.release());
      return UniqueFd();
    });
    ADD_FAILURE();
  } catch (const EnvironmentError& error) {
    EXPECT_SAYS(error.what(), "its connection of this process with itself failed 16 times");
  }
  EXPECT_EQ(tries, 16);
}

TEST(GlooHandover, WhatFailsInTheThreadOfGlooIsThrownHere) {
  try {
    TwoEngines two([](const sockaddr_storage&) -> UniqueFd { throw EnvironmentError("no way there"); });
    ADD_FAILURE();
  } catch (const EnvironmentError& error) {
    EXPECT_SAYS(error.what(), "no way there");
  }
}

}  // namespace
}  // namespace tutti::comm
