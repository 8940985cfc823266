#include "tutti/comm/gloo/peer_greeting.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

namespace tutti::comm {
namespace {

using State = PeerGreeting::State;

std::pair<UniqueFd, UniqueFd> ends() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

PeerGreeting accepting(UniqueFd fd, const std::string& key) {
  return PeerGreeting::accepting(std::move(fd), [key](int rank) { return rank == 3 ? key : ""; });
}

// Lets both talk until neither has news.
std::pair<State, State> talk(PeerGreeting& a, PeerGreeting& b) {
  std::pair<State, State> states{State::kUnderWay, State::kUnderWay};
  for (int i = 0; i < 10; ++i) states = {a.advance(), b.advance()};
  return states;
}

std::string read_all(int fd) {
  char bytes[256];
  const ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
  return got > 0 ? std::string(bytes, static_cast<size_t>(got)) : "";
}

void write_all(int fd, const std::string& bytes) {
  EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

TEST(PeerGreeting, BothEndsKnowTheKey) {
  auto [a, b] = ends();
  auto caller = PeerGreeting::connecting(std::move(a), 3, "the key");
  auto callee = accepting(std::move(b), "the key");
  EXPECT_EQ(talk(caller, callee), std::pair(State::kProven, State::kProven));
  EXPECT_EQ(callee.rank(), 3);
  // What the ranks send each other from here on is theirs.
  const UniqueFd from = caller.take(), to = callee.take();
  write_all(from.get(), "first bytes");
  EXPECT_EQ(read_all(to.get()), "first bytes");
}

TEST(PeerGreeting, BothEndsLearnThatTheirKeysDiffer) {
  auto [a, b] = ends();
  auto caller = PeerGreeting::connecting(std::move(a), 3, "the key");
  auto callee = accepting(std::move(b), "another key");
  EXPECT_EQ(talk(caller, callee), std::pair(State::kOtherKey, State::kOtherKey));
}

TEST(PeerGreeting, ARankThatIsNotExpectedIsAStranger) {
  auto [a, b] = ends();
  auto caller = PeerGreeting::connecting(std::move(a), 4, "the key");
  auto callee = accepting(std::move(b), "the key");
  EXPECT_EQ(talk(caller, callee).second, State::kStranger);
}

TEST(PeerGreeting, OtherBytesAreThoseOfAStranger) {
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(1, '\0'), std::string(500, 'x'),
                                   std::string("tutti gloo 2\n")}) {
    auto [a, b] = ends();
    auto callee = accepting(std::move(b), "the key");
    write_all(a.get(), bytes);
    EXPECT_EQ(callee.advance(), State::kStranger) << bytes;
    EXPECT_EQ(read_all(a.get()), "");
  }
}

TEST(PeerGreeting, HalfAGreetingWaitsForTheRestAndEndsWithTheConnection) {
  auto [a, b] = ends();
  auto callee = accepting(std::move(b), "the key");
  EXPECT_EQ(callee.advance(), State::kUnderWay);
  write_all(a.get(), "tutti gl");
  EXPECT_EQ(callee.advance(), State::kUnderWay);
  close(a.release());
  EXPECT_EQ(callee.advance(), State::kClosed);
}

TEST(PeerGreeting, GreetingByteByByteIsUnderstood) {
  auto [a, far] = ends();
  auto [near, b] = ends();
  auto caller = PeerGreeting::connecting(std::move(a), 3, "the key");
  auto callee = accepting(std::move(b), "the key");
  State mine = State::kUnderWay, theirs = State::kUnderWay;
  for (int i = 0; i < 1000 && (mine == State::kUnderWay || theirs == State::kUnderWay); ++i) {
    mine = caller.advance();
    theirs = callee.advance();
    char byte = 0;
    if (recv(far.get(), &byte, 1, MSG_DONTWAIT) == 1) write_all(near.get(), std::string(1, byte));
    if (recv(near.get(), &byte, 1, MSG_DONTWAIT) == 1) write_all(far.get(), std::string(1, byte));
  }
  EXPECT_EQ(mine, State::kProven);
  EXPECT_EQ(theirs, State::kProven);
}

TEST(PeerGreeting, AProofThatWasOverheardProvesNothing) {
  std::string hello, proof;
  {
    auto [a, far] = ends();
    auto [near, b] = ends();
    auto caller = PeerGreeting::connecting(std::move(a), 3, "the key");
    auto callee = accepting(std::move(b), "the key");
    caller.advance();
    write_all(near.get(), hello = read_all(far.get()));
    callee.advance();
    write_all(far.get(), read_all(near.get()));
    caller.advance();
    write_all(near.get(), proof = read_all(far.get()));
    EXPECT_EQ(callee.advance(), State::kProven);
  }
  auto [a, b] = ends();
  auto callee = accepting(std::move(b), "the key");
  write_all(a.get(), hello + proof);
  EXPECT_EQ(callee.advance(), State::kOtherKey);
}

TEST(PeerGreeting, OneThatSendsBackWhatItGotDoesNotPassForARank) {
  auto [a, mirror] = ends();
  auto caller = PeerGreeting::connecting(std::move(a), 3, "the key");
  State state = State::kUnderWay;
  for (int i = 0; i < 10 && state == State::kUnderWay; ++i) {
    state = caller.advance();
    if (const std::string bytes = read_all(mirror.get()); !bytes.empty()) write_all(mirror.get(), bytes);
  }
  EXPECT_NE(state, State::kProven);
  EXPECT_NE(state, State::kUnderWay);
}

TEST(PeerGreeting, OneThatCannotProveTheKeyDoesNotPassForTheAcceptingEnd) {
  auto [a, far] = ends();
  auto caller = PeerGreeting::connecting(std::move(a), 3, "the key");
  caller.advance();
  write_all(far.get(), std::string(32, 'n'));
  caller.advance();
  write_all(far.get(), '\1' + std::string(32, 'p'));
  EXPECT_EQ(caller.advance(), State::kStranger);
}

TEST(PeerGreeting, ClosedConnectionsSayWhy) {
  auto [a, far] = ends();
  auto caller = PeerGreeting::connecting(std::move(a), 3, "the key");
  shutdown(far.get(), SHUT_RDWR);
  EXPECT_EQ(caller.advance(), State::kClosed);
  EXPECT_EQ(caller.error(), EPIPE);
  auto [c, d] = ends();
  auto callee = accepting(std::move(d), "the key");
  shutdown(c.get(), SHUT_WR);
  EXPECT_EQ(callee.advance(), State::kClosed);
  EXPECT_EQ(callee.error(), 0);
}

}  // namespace
}  // namespace tutti::comm
