#include "tutti/job/store/server_session.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace tutti::comm {
namespace {

constexpr auto kGreetingTime = std::chrono::seconds(20);
constexpr auto kStallTime = std::chrono::seconds(60);
constexpr auto kEndingTime = std::chrono::seconds(2);
constexpr size_t kReceiveBytes = size_t{64} << 10;
// A buffer that once held a large value is not kept.
constexpr size_t kKeptBytes = size_t{64} << 10;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

template <class Bytes>
Bytes read_fixed(WireReader& reader) {
  const std::string_view text = reader.read_bytes();
  Bytes bytes{};
  if (text.size() != bytes.size()) throw WireError(fmt::format("malformed frame: {} bytes of greeting", text.size()));
  std::copy(text.begin(), text.end(), bytes.begin());
  return bytes;
}

}  // namespace

ServerSession::ServerSession(UniqueFd fd, std::string peer, const std::string& job_key)
    : fd_(std::move(fd)), peer_(std::move(peer)), job_key_(job_key) {
  deadline_ = std::chrono::steady_clock::now() + kGreetingTime;
}

// The time for the greeting is given once; a request or reply may take long as long as bytes move.
void ServerSession::expect_progress() {
  if (state_ != State::kReady) return;
  if (has_output() || !input_.empty()) {
    deadline_ = std::chrono::steady_clock::now() + kStallTime;
  } else {
    deadline_.reset();
  }
}

void ServerSession::receive() {
  static thread_local std::array<char, kReceiveBytes> buffer;
  const ssize_t count = recv(fd(), buffer.data(), buffer.size(), 0);
  if (count < 0 && would_block(errno)) return;
  if (count <= 0) return drop();
  if (state_ == State::kEnding) return;
  input_.append(buffer.data(), static_cast<size_t>(count));
  expect_progress();
}

bool ServerSession::handle_next(const Handler& handler) {
  const bool is_greeting = state_ == State::kGreeting;
  if ((!is_greeting && state_ != State::kReady) || has_output() || input_.size() < kWireHeaderBytes) return false;
  const WireHeader header = read_wire_header(input_);
  const size_t limit = is_greeting ? kMaxWireGreeting : kMaxWireBody;
  if (header.version != kWireVersion || header.reserved != 0) {
    refuse(fmt::format("its bytes are not those of a Tutti store of protocol version {}", kWireVersion));
    return false;
  }
  if (header.body_bytes > limit) {
    refuse(fmt::format("it announced a request of {} bytes, the limit is {}", header.body_bytes, limit));
    return false;
  }
  const size_t size = kWireHeaderBytes + header.body_bytes;
  if (input_.size() < size) return false;
  // The next request's beginning, if any, stays; this one is moved out, for it may be large.
  std::string request = std::move(input_);
  input_.assign(request, size, std::string::npos);
  const std::string_view body = std::string_view(request).substr(kWireHeaderBytes, header.body_bytes);
  try {
    if (is_greeting) {
      greet(static_cast<WireOp>(header.code), body);
    } else {
      handler(header.code, body);
    }
  } catch (const WireError& error) {
    refuse(error.what());
  }
  if (input_.empty() && request.capacity() <= kKeptBytes) {
    request.clear();
    input_ = std::move(request);
  }
  expect_progress();
  return true;
}

void ServerSession::greet(WireOp op, std::string_view body) {
  WireReader reader(body);
  if (op == WireOp::kHello && !said_hello_) {
    client_nonce_ = read_fixed<Nonce>(reader);
    const bool client_has_key = reader.read_u8() != 0;
    reader.expect_end();
    said_hello_ = true;
    server_nonce_ = make_nonce();
    send(WireWriter(WireStatus::kOk)
             .put_bytes({server_nonce_.data(), server_nonce_.size()})
             .put_u8(!job_key_.empty())
             .finish());
    // Whoever has no key where one is needed ends by itself, and so does one that has a key where none is needed.
    if (job_key_.empty() && !client_has_key) state_ = State::kReady;
    return;
  }
  if (op != WireOp::kProof || !said_hello_ || job_key_.empty()) {
    return refuse("it did not greet before its first request");
  }
  const Proof proof = read_fixed<Proof>(reader);
  reader.expect_end();
  if (!is_same_proof(proof, make_proof(job_key_, Side::kClient, client_nonce_, server_nonce_))) {
    return refuse("it has another job key");
  }
  const Proof mine = make_proof(job_key_, Side::kServer, client_nonce_, server_nonce_);
  send(WireWriter(WireStatus::kOk).put_bytes({mine.data(), mine.size()}).finish());
  state_ = State::kReady;
}

void ServerSession::send(std::string frame) {
  if (state_ == State::kGone) return;
  if (has_output()) {
    output_ += frame;
  } else {
    output_ = std::move(frame);
    sent_ = 0;
  }
  flush();
}

void ServerSession::flush() {
  while (has_output() && state_ != State::kGone) {
    const ssize_t count = ::send(fd(), output_.data() + sent_, output_.size() - sent_, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && would_block(errno)) break;
    if (count < 0) return drop();
    sent_ += static_cast<size_t>(count);
  }
  if (!has_output()) {
    if (output_.capacity() > kKeptBytes) output_ = std::string();
    output_.clear();
    sent_ = 0;
    // The refused client must read why before the connection goes: a close with bytes unread would reset it.
    if (state_ == State::kEnding) shutdown(fd(), SHUT_WR);
  }
  expect_progress();
}

void ServerSession::refuse(std::string reason) {
  if (state_ == State::kEnding || state_ == State::kGone) return;
  refusal_ = std::move(reason);
  state_ = State::kEnding;
  input_ = std::string();
  deadline_ = std::chrono::steady_clock::now() + kEndingTime;
  send(WireWriter(WireStatus::kRefused).put_bytes(refusal_).finish());
}

}  // namespace tutti::comm
