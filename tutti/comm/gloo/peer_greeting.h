// Both ends of a new connection prove to each other that they know the job key, before anything else:
//
//   the end that connects              the end that accepts
//   greeting, its rank, nonce     ->
//                                 <-   nonce
//   proof                         ->
//                                 <-   whether the proof is right, own proof
#pragma once

#include <functional>
#include <string>

#include "tutti/job/store/key_proof.h"
#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {

// One end. It never blocks, and reads no byte beyond its part. One thread at a time.
class PeerGreeting {
 public:
  enum class State {
    kUnderWay,
    kProven,
    kOtherKey,  // the accepting end has another key than the connecting one
    kStranger,  // the other end does not speak so, is no rank that is expected, or cannot prove that it knows the key
    kClosed,    // by the other end, or the connection broke: error()
  };
  // The key with which a rank that connects must prove itself; "" when it is not expected.
  using KeyOf = std::function<std::string(int rank)>;

  // `fd` does not block; it may still be connecting.
  static PeerGreeting connecting(UniqueFd fd, int own_rank, std::string key);
  static PeerGreeting accepting(UniqueFd fd, KeyOf key_of);

  // Sends and reads what can be sent and read now.
  State advance();
  int fd() const { return fd_.get(); }
  // The events to poll() for.
  short events() const;
  // The rank that the connecting end says it is, or -1. Nothing is proven before State::kProven.
  int rank() const { return rank_; }
  // Whether the other end has been told, or has told, that its key is another one.
  bool has_refused() const { return state_ == State::kOtherKey; }
  // The errno with which the connection broke; 0: the other end closed it.
  int error() const { return error_; }
  // The connection, once proven.
  UniqueFd take() { return std::move(fd_); }

 private:
  enum class Step { kHello, kNonce, kProof, kVerdict, kDone };

  PeerGreeting(UniqueFd fd, Step step) : fd_(std::move(fd)), step_(step) {}
  bool flush();
  bool fill();
  void take_step();
  void take_hello();
  void take_proof();
  void take_verdict();
  void end(State state);

  UniqueFd fd_;
  Step step_;  // what is read next
  State state_ = State::kUnderWay;
  State outcome_ = State::kUnderWay;  // after what is still to be sent
  KeyOf key_of_;
  std::string key_;
  int rank_ = -1;
  int error_ = 0;
  Nonce mine_{};
  Nonce theirs_{};
  std::string input_;
  std::string output_;
};

}  // namespace tutti::comm
