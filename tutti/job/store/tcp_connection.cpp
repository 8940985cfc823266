#include "tutti/job/store/tcp_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "tutti/job/printable.h"
#include "tutti/job/store/job_key.h"
#include "tutti/job/store/key_proof.h"

namespace tutti::comm {
namespace {

// A call that waits for long looks this often whether the server's host is still there.
constexpr int kLookMilliseconds = 500;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

std::string text_of_silence() {
  return fmt::format("the server's host has not answered for {} s", kSilenceOfAHost.count());
}

std::string text_of_error(int error) {
  if (error == EPIPE || error == ECONNRESET) return "the server closed the connection";
  return error == ETIMEDOUT ? text_of_silence() : detail::errno_text(error);
}

[[noreturn]] void throw_unreachable(const std::string& host, int port, bool has_key, double waited,
                                    const std::string& error) {
  std::string hint = "Is rank 0 running, and are host and port its own?";
  if (!has_key && loopback_of(host).empty()) {
    hint =
        "Without a job key a server listens on its own host only: set TUTTI_JOB_KEY to the same secret on all hosts.";
  }
  throw StoreTimeout(fmt::format("store at tcp://{}: nobody answered for {:.3f} s; last error: {}. {}",
                                 host_and_port(host, port), waited, error, hint));
}

}  // namespace

TcpConnection::TcpConnection(const std::string& host, int port, const std::string& job_key,
                             std::chrono::milliseconds timeout)
    : address_("tcp://" + host_and_port(host, port)) {
  TUTTI_CHECK(!host.empty(), "store: a TcpStore needs the name or address of a host");
  TUTTI_CHECK(port >= 1 && port <= 65535, "store: port {} to connect to; it must be 1 to 65535", port);
  check_store_timeout("connect", timeout);
  check_job_key(job_key);
  const auto begin = std::chrono::steady_clock::now();
  const StoreDeadline deadline(timeout);
  std::string error = "no time to try";
  for (auto pause = std::chrono::milliseconds(5);; pause = std::min(2 * pause, std::chrono::milliseconds(250))) {
    fd_ = try_connect(host, port, deadline, error);
    if (fd_ && greet(job_key, deadline, error)) return;
    const auto now = std::chrono::steady_clock::now();
    if (now + pause >= deadline.moment()) {
      std::this_thread::sleep_until(deadline.moment());
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
      throw_unreachable(host, port, !job_key.empty(), waited.count(), error);
    }
    std::this_thread::sleep_for(pause);
  }
}

bool TcpConnection::greet(const std::string& job_key, const StoreDeadline& deadline, std::string& error) {
  const auto check_accepted = [&](const WireReply& reply) {
    if (reply.status == WireStatus::kOk) return;
    WireReader reader(reply.body);
    throw UsageError(
        fmt::format("store at {}: the server refused this client: {}. All ranks need the same TUTTI_JOB_KEY (or "
                    "TUTTI_JOB_KEY_FILE)",
                    address_, printable_lines(reader.read_bytes())));
  };
  const auto read_array = [&](WireReader& reader, auto bytes) {
    const std::string_view text = reader.read_bytes();
    if (text.size() != bytes.size()) throw WireError(fmt::format("store at {}: malformed greeting", address_));
    std::copy(text.begin(), text.end(), bytes.begin());
    return bytes;
  };
  const Nonce mine = make_nonce();
  WireReply reply;
  const bool has_key = !job_key.empty();
  if (!exchange(WireWriter(WireOp::kHello).put_bytes({mine.data(), mine.size()}).put_u8(has_key).finish(), deadline,
                reply, error)) {
    return false;
  }
  check_accepted(reply);
  WireReader reader(reply.body);
  const Nonce theirs = read_array(reader, Nonce());
  const bool needs_key = reader.read_u8() != 0;
  reader.expect_end();
  TUTTI_CHECK(has_key || !needs_key,
              "store at {}: the server needs a job key and this process has none; set TUTTI_JOB_KEY (or "
              "TUTTI_JOB_KEY_FILE) to the secret of the job",
              address_);
  TUTTI_CHECK(!has_key || needs_key,
              "store at {}: this process has a job key and the server does not ask for one, so it is not the server of "
              "this job; set TUTTI_JOB_KEY (or TUTTI_JOB_KEY_FILE) where the server starts",
              address_);
  if (!has_key) return true;
  const Proof proof = make_proof(job_key, Side::kClient, mine, theirs);
  if (!exchange(WireWriter(WireOp::kProof).put_bytes({proof.data(), proof.size()}).finish(), deadline, reply, error)) {
    return false;
  }
  check_accepted(reply);
  WireReader answer(reply.body);
  TUTTI_CHECK(is_same_proof(read_array(answer, Proof()), make_proof(job_key, Side::kServer, mine, theirs)),
              "store at {}: the server does not know the job key, so it is not the server of this job", address_);
  return true;
}

WireReply TcpConnection::call(const std::string& frame, const StoreDeadline& deadline, std::string_view op,
                              std::string_view key) {
  const auto fail = [&](const std::string& why) {
    throw EnvironmentError(fmt::format("store at {}: {} during {}{}", address_, why, op,
                                       key.empty() ? "" : fmt::format(" of '{}'", printable_key(key))));
  };
  if (!broken_.empty()) {
    throw EnvironmentError(
        fmt::format("store at {}: {} is not possible, the connection broke earlier ({}); make a new "
                    "TcpStore or a clone()",
                    address_, op, broken_));
  }
  WireReply reply;
  std::string error;
  if (!exchange(frame, deadline, reply, error)) {
    broken_ = error;
    fd_ = UniqueFd();
    fail(error);
  }
  if (reply.status == WireStatus::kOk || reply.status == WireStatus::kTimeout) return reply;
  WireReader reader(reply.body);
  const std::string text = printable_lines(reader.read_bytes());
  if (reply.status == WireStatus::kUsageError) throw UsageError(text);
  if (reply.status == WireStatus::kEnvironmentError) throw EnvironmentError(text);
  broken_ = "the server refused this client: " + text;
  fd_ = UniqueFd();
  fail(broken_);
  return reply;
}

bool TcpConnection::exchange(const std::string& frame, const StoreDeadline& deadline, WireReply& reply,
                             std::string& error) {
  if (!send_all(frame, deadline, error)) return false;
  char bytes[kWireHeaderBytes];
  if (!receive_all(bytes, sizeof bytes, deadline, error)) return false;
  const WireHeader header = read_wire_header({bytes, sizeof bytes});
  if (header.version != kWireVersion || header.reserved != 0 || header.body_bytes > kMaxWireBody ||
      header.code > static_cast<uint8_t>(WireStatus::kRefused)) {
    broken_ = "its bytes are not those of a Tutti store";
    throw WireError(fmt::format("store at {}: whoever answers there is no Tutti store of protocol version {}", address_,
                                kWireVersion));
  }
  reply.status = static_cast<WireStatus>(header.code);
  reply.body.resize(header.body_bytes);
  return receive_all(reply.body.data(), reply.body.size(), deadline, error);
}

bool TcpConnection::wait_until_ready(short events, const StoreDeadline& deadline, std::string& error) {
  pollfd waited{.fd = fd_.get(), .events = events, .revents = 0};
  while (true) {
    const int ready = poll(&waited, 1, std::min(deadline.poll_milliseconds(), kLookMilliseconds));
    if (ready > 0) return true;
    if (silence_.is_silent(fd_.get())) {
      error = text_of_silence();
      return false;
    }
    if (ready < 0 && errno != EINTR) {
      error = detail::errno_text(errno);
      return false;
    }
    if (deadline.has_passed()) {
      error = "the server did not answer in time";
      return false;
    }
  }
}

bool TcpConnection::send_all(std::string_view bytes, const StoreDeadline& deadline, std::string& error) {
  while (!bytes.empty()) {
    const ssize_t count = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (would_block(errno)) {
      if (!wait_until_ready(POLLOUT, deadline, error)) return false;
    } else if (errno != EINTR) {
      error = text_of_error(errno);
      return false;
    }
  }
  return true;
}

bool TcpConnection::receive_all(char* bytes, size_t count, const StoreDeadline& deadline, std::string& error) {
  while (count > 0) {
    const ssize_t got = recv(fd_.get(), bytes, count, 0);
    if (got > 0) {
      bytes += got;
      count -= static_cast<size_t>(got);
    } else if (got < 0 && would_block(errno)) {
      if (!wait_until_ready(POLLIN, deadline, error)) return false;
    } else if (got == 0 || errno != EINTR) {
      error = text_of_error(got == 0 ? ECONNRESET : errno);
      return false;
    }
  }
  return true;
}

}  // namespace tutti::comm
