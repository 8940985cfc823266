#include "tutti/comm/gloo/peer_greeting.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string_view>

namespace tutti::comm {
namespace {

constexpr std::string_view kGreeting = "tutti gloo 1\n";
constexpr size_t kRankBytes = 4;
constexpr char kRight = 1, kWrong = 0;

template <class Bytes>
std::string_view text_of(const Bytes& bytes) {
  return {bytes.data(), bytes.size()};
}

template <class Bytes>
Bytes bytes_of(std::string_view text) {
  Bytes bytes{};
  std::copy_n(text.begin(), bytes.size(), bytes.begin());
  return bytes;
}

std::string pack_rank(int rank) {
  std::string bytes;
  for (size_t i = 0; i < kRankBytes; ++i) bytes += static_cast<char>(static_cast<uint32_t>(rank) >> (8 * i));
  return bytes;
}

int unpack_rank(std::string_view bytes) {
  uint32_t rank = 0;
  for (size_t i = 0; i < kRankBytes; ++i)
    rank |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  return static_cast<int>(rank);
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

PeerGreeting PeerGreeting::connecting(UniqueFd fd, int own_rank, std::string key) {
  PeerGreeting greeting(std::move(fd), Step::kNonce);
  greeting.key_ = std::move(key);
  greeting.mine_ = make_nonce();
  greeting.output_ = std::string(kGreeting) + pack_rank(own_rank);
  greeting.output_ += text_of(greeting.mine_);
  return greeting;
}

PeerGreeting PeerGreeting::accepting(UniqueFd fd, KeyOf key_of) {
  PeerGreeting greeting(std::move(fd), Step::kHello);
  greeting.key_of_ = std::move(key_of);
  return greeting;
}

short PeerGreeting::events() const { return output_.empty() ? POLLIN : POLLOUT; }

PeerGreeting::State PeerGreeting::advance() {
  while (state_ == State::kUnderWay && flush()) {
    if (step_ == Step::kDone) {
      state_ = outcome_;
    } else if (fill()) {
      take_step();
    } else {
      break;
    }
  }
  return state_;
}

// False while something is left to send, or when it cannot be sent any more.
bool PeerGreeting::flush() {
  while (!output_.empty()) {
    const ssize_t sent = send(fd(), output_.data(), output_.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      output_.erase(0, static_cast<size_t>(sent));
    } else if (would_block(errno)) {
      return false;
    } else if (errno != EINTR) {
      error_ = errno;
      state_ = State::kClosed;
      return false;
    }
  }
  return true;
}

// True when all bytes of this step are there.
bool PeerGreeting::fill() {
  const size_t wanted = step_ == Step::kHello     ? kGreeting.size() + kRankBytes + sizeof(Nonce)
                        : step_ == Step::kVerdict ? 1 + sizeof(Proof)
                                                  : sizeof(Nonce);
  char bytes[128];
  while (input_.size() < wanted) {
    const ssize_t got = recv(fd(), bytes, std::min(sizeof bytes, wanted - input_.size()), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && would_block(errno)) return false;
    if (got <= 0) {
      error_ = got == 0 ? 0 : errno;
      state_ = State::kClosed;
      return false;
    }
    input_.append(bytes, static_cast<size_t>(got));
    const size_t seen = std::min(input_.size(), kGreeting.size());
    if (step_ == Step::kHello && input_.compare(0, seen, kGreeting, 0, seen) != 0) {
      state_ = State::kStranger;
      return false;
    }
  }
  return true;
}

void PeerGreeting::take_step() {
  switch (step_) {
    case Step::kHello:
      take_hello();
      break;
    case Step::kNonce:
      theirs_ = bytes_of<Nonce>(input_);
      output_ = text_of(make_proof(key_, Side::kClient, mine_, theirs_));
      step_ = Step::kVerdict;
      break;
    case Step::kProof:
      take_proof();
      break;
    case Step::kVerdict:
      take_verdict();
      break;
    case Step::kDone:
      break;
  }
  input_.clear();
}

void PeerGreeting::take_hello() {
  const std::string_view rest = std::string_view(input_).substr(kGreeting.size());
  rank_ = unpack_rank(rest);
  key_ = key_of_(rank_);
  if (key_.empty()) return end(State::kStranger);
  theirs_ = bytes_of<Nonce>(rest.substr(kRankBytes));
  mine_ = make_nonce();
  output_ = text_of(mine_);
  step_ = Step::kProof;
}

void PeerGreeting::take_proof() {
  const bool is_right = is_same_proof(bytes_of<Proof>(input_), make_proof(key_, Side::kClient, theirs_, mine_));
  output_ = is_right ? kRight : kWrong;
  // Who cannot prove anything gets nothing that was made with the key.
  output_ += is_right ? text_of(make_proof(key_, Side::kServer, theirs_, mine_)) : text_of(Proof{});
  end(is_right ? State::kProven : State::kOtherKey);
}

void PeerGreeting::take_verdict() {
  if (input_[0] == kWrong) return end(State::kOtherKey);
  const bool is_right = is_same_proof(bytes_of<Proof>(std::string_view(input_).substr(1)),
                                      make_proof(key_, Side::kServer, mine_, theirs_));
  end(is_right ? State::kProven : State::kStranger);
}

void PeerGreeting::end(State state) {
  outcome_ = state;
  step_ = Step::kDone;
}

}  // namespace tutti::comm
