#include "tutti/generate/serve/connections.h"

#include <fmt/core.h>
#include <httplib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <string>

#include "tutti/generate/serve/api_error.h"
#include "tutti/generate/serve/socket_stream.h"
#include "tutti/generate/serve/worker_pool.h"

namespace tutti::generate::serve {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlice{100};
constexpr milliseconds kLinger{1000};
constexpr milliseconds kRefusedLinger{20};  // short, because others wait to be refused

// Whether the connection of this thread ends with the answer that is being made.
thread_local bool ends_connection = false;

class Workers final : public httplib::TaskQueue {
 public:
  explicit Workers(int64_t connections) : pool_(connections) {}
  void enqueue(std::function<void()> task) override { pool_.add(std::move(task)); }
  void shutdown() override { pool_.join(); }

 private:
  WorkerPool pool_;
};

// Waits a moment for the request, since a client may read only after it has sent.
void refuse(SocketStream& stream, int64_t connections) {
  stream.wait_for_bytes(kSlice);
  const std::string body =
      error_json(overloaded(fmt::format("{} connections are open, and no more are allowed", connections)));
  const std::string answer = fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
  if (stream.write(answer.data(), answer.size()) > 0) stream.linger(kRefusedLinger);
}

// The connection as httplib reads and writes it.
class HttpStream final : public httplib::Stream {
 public:
  explicit HttpStream(SocketStream& stream) : stream_(stream) {}

  bool is_readable() const override { return stream_.is_readable(); }
  bool is_writable() const override { return stream_.is_writable(); }
  ssize_t read(char* bytes, size_t most) override { return stream_.read(bytes, most); }
  ssize_t write(const char* bytes, size_t nbytes) override { return stream_.write(bytes, nbytes); }
  // Nobody asks for addresses.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return stream_.socket(); }

 private:
  SocketStream& stream_;
};

class Connections final : public httplib::Server {
 public:
  explicit Connections(const ConnectionLimits& limits);

 private:
  std::optional<ApiError> wrong_length(const httplib::Request& request) const;
  bool process_and_close_socket(socket_t socket) override;
  void serve(socket_t socket);

  const ConnectionLimits limits_;
};

Connections::Connections(const ConnectionLimits& limits) : limits_(limits) {
  new_task_queue = [this] {
    // Called when the socket is bound. httplib lets five connections wait to be accepted; when more come at once, the
    // system makes them wait for seconds.
    ::listen(svr_sock_, SOMAXCONN);
    return new Workers(limits_.connections);
  };
  set_payload_max_length(limits_.body_nbytes);
  set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    const std::optional<ApiError> error = wrong_length(request);
    if (!error) return HandlerResponse::Unhandled;
    ends_connection = true;
    response.status = error->status();
    response.set_header("Connection", "close");
    response.set_content(error_json(*error), "application/json");
    return HandlerResponse::Handled;
  });
}

std::optional<ApiError> Connections::wrong_length(const httplib::Request& request) const {
  if (!request.has_header("Content-Length")) return std::nullopt;
  const std::string length = request.get_header_value("Content-Length");
  size_t nbytes = 0;
  const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), nbytes);
  if (error == std::errc::invalid_argument || end != length.data() + length.size())
    return bad_request(fmt::format("Content-Length is '{}'; expected a number of bytes", length.substr(0, 40)));
  if (error == std::errc() && nbytes <= limits_.body_nbytes) return std::nullopt;
  return ApiError(
      413, "invalid_request_error", "body_too_large",
      fmt::format("a body of {} bytes is announced; at most {} are taken", length.substr(0, 40), limits_.body_nbytes));
}

bool Connections::process_and_close_socket(socket_t socket) {
  serve(socket);
  ::shutdown(socket, SHUT_RDWR);
  ::close(socket);
  return true;
}

void Connections::serve(socket_t socket) {
  SocketStream stream(socket, limits_.write_time);
  if (WorkerPool::is_spare()) return refuse(stream, limits_.connections);
  const auto waits_for_request = [&] {
    for (milliseconds waited{0}; waited < limits_.idle_time && svr_sock_ != INVALID_SOCKET; waited += kSlice)
      if (stream.wait_for_bytes(kSlice)) return true;
    return false;
  };
  ends_connection = false;
  HttpStream http(stream);
  for (size_t left = keep_alive_max_count_; left > 0 && waits_for_request(); --left) {
    bool is_closed = false;
    stream.begin_request(limits_.request_time);
    if (!process_request(http, left == 1, is_closed, nullptr) || is_closed || ends_connection) break;
  }
  if (ends_connection) stream.linger(kLinger);
}

}  // namespace

std::unique_ptr<httplib::Server> make_server(const ConnectionLimits& limits) {
  return std::make_unique<Connections>(limits);
}

void end_this_connection() { ends_connection = true; }

}  // namespace tutti::generate::serve
