// One client as TcpStoreServer sees it: its bytes on the way in and out, and whether it has proved who it is.
//
// Used by the server's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tutti/job/store/key_proof.h"
#include "tutti/job/store/socket.h"
#include "tutti/job/store/wire.h"

namespace tutti::comm {

class ServerSession {
 public:
  // The state of the client after its bytes were handled.
  enum class State {
    kGreeting,  // has not said or proved who it is
    kReady,
    kEnding,  // was refused: what it still sends is thrown away until it has read the reason
    kGone,
  };
  using Handler = std::function<void(uint8_t code, std::string_view body)>;

  ServerSession(UniqueFd fd, std::string peer, const std::string& job_key);

  State state() const { return state_; }
  int fd() const { return fd_.get(); }
  const std::string& peer() const { return peer_; }
  // Why the client was refused, once; "" when it was not.
  std::string take_refusal() { return std::exchange(refusal_, std::string()); }
  bool has_output() const { return sent_ < output_.size(); }
  // When the client is to be dropped unless it moves on: while greeting, in the middle of a request, while a reply
  // waits to be read.
  std::optional<std::chrono::steady_clock::time_point> deadline() const { return deadline_; }

  // Takes what has come in, one portion.
  void receive();
  // Passes the next whole request on; false when there is none, or a reply has to leave first.
  bool handle_next(const Handler& handler);
  void send(std::string frame);
  // Sends what the socket takes.
  void flush();
  // Says why, and ends.
  void refuse(std::string reason);

 private:
  void greet(WireOp op, std::string_view body);
  void drop() { state_ = State::kGone; }
  void expect_progress();

  UniqueFd fd_;
  std::string peer_;
  const std::string& job_key_;
  State state_ = State::kGreeting;
  bool said_hello_ = false;
  Nonce client_nonce_{};
  Nonce server_nonce_{};
  std::string input_;
  std::string output_;
  size_t sent_ = 0;
  std::string refusal_;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
};

}  // namespace tutti::comm
