#include "tutti/generate/serve/connections.h"

#include <fmt/core.h>
#include <httplib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <exception>
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
// Whether this thread only refuses the connection, for want of one that could serve it.
thread_local bool lacks_thread = false;
thread_local const SocketStream* served_stream = nullptr;

class Workers final : public httplib::TaskQueue {
 public:
  explicit Workers(int64_t connections) : pool_(connections) {}
  void enqueue(std::function<void()> task) override {
    if (pool_.add(task)) return;
    lacks_thread = true;  // so that the thread that accepts connections tells this one
    task();
    lacks_thread = false;
  }
  void shutdown() override { pool_.join(); }

 private:
  WorkerPool pool_;
};

// Waits a moment for the request, since a client may read only after it has sent.
void refuse(SocketStream& stream, const std::string& reason) {
  stream.wait_for_bytes(kSlice);
  const std::string body = error_json(overloaded(reason));
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

// Whether the header has this value, in which case does not count.
bool has_word(const httplib::Request& request, const char* header, const char* word) {
  return strcasecmp(request.get_header_value(header).c_str(), word) == 0;
}

bool is_chunked(const httplib::Request& request) { return has_word(request, "Transfer-Encoding", "chunked"); }

// Whether bytes of a body stay unread, which would be taken for the next request.
bool leaves_body(const httplib::Request& request) {
  if (request.method == "POST" || request.method == "PUT" || request.method == "PATCH") return false;
  return is_chunked(request) || (request.has_header("Content-Length") && !has_word(request, "Content-Length", "0"));
}

class Connections final : public httplib::Server {
 public:
  explicit Connections(const ConnectionLimits& limits);

 private:
  std::optional<ApiError> wrong_body(const httplib::Request& request) const;
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
    const std::optional<ApiError> error = wrong_body(request);
    ends_connection = error || leaves_body(request);
    if (ends_connection) response.set_header("Connection", "close");
    if (!error) return HandlerResponse::Unhandled;
    set_error(*error, response);
    return HandlerResponse::Handled;
  });
  set_exception_handler([](const httplib::Request&, httplib::Response& response, const std::exception_ptr& exception) {
    ends_connection = true;
    std::string why = "an exception without a message";
    try {
      std::rethrow_exception(exception);
    } catch (const std::exception& error) {
      why = error.what();
    } catch (...) {
      // there is no more to say
    }
    set_error(ApiError(500, "server_error", "internal_error", why), response);
  });
}

// What would be read in two ways, or not at all.
std::optional<ApiError> Connections::wrong_body(const httplib::Request& request) const {
  const size_t lengths = request.get_header_value_count("Content-Length");
  const size_t codings = request.get_header_value_count("Transfer-Encoding");
  if (lengths + codings > 1)
    return bad_request(
        fmt::format("the headers Content-Length and Transfer-Encoding come {} times; expected one of them, once",
                    lengths + codings));
  const auto refused = [&](int status, const char* header, const char* supported) {
    return ApiError(
        status, "invalid_request_error", "not_supported",
        fmt::format("{} is '{}'; supported is {}", header, request.get_header_value(header).substr(0, 40), supported));
  };
  if (codings > 0 && !is_chunked(request)) return refused(501, "Transfer-Encoding", "chunked");
  if (request.is_multipart_form_data()) return refused(415, "Content-Type", "application/json");
  if (request.has_header("Content-Encoding") && !has_word(request, "Content-Encoding", "identity"))
    return refused(415, "Content-Encoding", "identity");
  return wrong_length(request);
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
  if (lacks_thread) return refuse(stream, "the system gives no thread for this connection; try again later");
  if (WorkerPool::is_spare())
    return refuse(stream, fmt::format("{} connections are open, and no more are allowed", limits_.connections));
  const auto waits_for_request = [&] {
    for (milliseconds waited{0}; waited < limits_.idle_time && svr_sock_ != INVALID_SOCKET; waited += kSlice)
      if (stream.wait_for_bytes(kSlice)) return true;
    return false;
  };
  ends_connection = false;
  served_stream = &stream;
  const auto not_served = std::shared_ptr<void>(nullptr, [](void*) { served_stream = nullptr; });
  HttpStream http(stream);
  for (size_t left = keep_alive_max_count_; left > 0 && waits_for_request(); --left) {
    bool is_closed = false;
    stream.begin_request(limits_.request_time);
    ends_connection = true;  // of requests that httplib refuses by itself: it leaves their bodies unread
    // Answers are not files, of which parts could be asked.
    const auto without_ranges = [](httplib::Request& request) { request.ranges.clear(); };
    if (!process_request(http, left == 1, is_closed, without_ranges)) return;  // nothing was answered
    if (is_closed || ends_connection) break;
  }
  if (ends_connection) stream.linger(kLinger);
}

}  // namespace

std::unique_ptr<httplib::Server> make_server(const ConnectionLimits& limits) {
  return std::make_unique<Connections>(limits);
}

bool client_is_there() { return served_stream == nullptr || served_stream->is_connected(); }

void set_error(const ApiError& error, httplib::Response& response) {
  response.status = error.status();
  response.set_content(error_json(error), "application/json");
}

void end_this_connection() { ends_connection = true; }

}  // namespace tutti::generate::serve
