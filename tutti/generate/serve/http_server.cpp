#include "tutti/generate/serve/http_server.h"

#include <arpa/inet.h>
#include <httplib.h>

#include <algorithm>
#include <thread>

#include "tutti/generate/serve/api_error.h"
#include "tutti/generate/serve/chat_page.h"
#include "tutti/generate/serve/connections.h"

namespace tutti::generate::serve {
namespace {

// How often a stream without news looks whether its client is still there.
constexpr std::chrono::milliseconds kPatience{100};

// An address of 127/8, or a name of the loopback; not a name that only begins so, as 127.evil.example.
bool is_loopback(const std::string& host) {
  if (host == "localhost" || host == "::1" || host == "[::1]") return true;
  in_addr address = {};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

std::string without_port(const std::string& host) {
  const size_t colon = host.rfind(':');
  return colon == std::string::npos || host.ends_with(']') ? host : host.substr(0, colon);
}

// Takes the same time wherever the texts differ.
bool is_same_key(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(key[i % key.size()]);
  return difference == 0;
}

}  // namespace

class HttpServer::Implementation {
 public:
  Implementation(Backend& backend, ServedModel model, const HttpOptions& options)
      : options_(options),
        api_(backend, std::move(model), options.api),
        server_(make_server({.connections = options.connections,
                             .body_nbytes = options.body_nbytes,
                             .request_time = options.request_time,
                             .write_time = options.io_timeout})) {
    TUTTI_CHECK(is_loopback(options_.host) || !options_.api_key.empty(),
                "the address {} can be reached by others: set an API key, or serve 127.0.0.1", options_.host);
    TUTTI_CHECK(options_.connections > 0, "{} connections are allowed; expected at least one", options_.connections);
    configure();
    bind();
    listener_ = std::thread([this] { server_->listen_after_bind(); });
    while (!server_->is_running()) std::this_thread::yield();
  }

  ~Implementation() { stop(); }

  int port() const { return port_; }
  const std::string& host() const { return options_.host; }

  void stop() {
    const std::lock_guard lock(stopping_);
    is_draining_ = true;
    wait_for_requests(options_.drain);
    api_.abort();
    wait_for_requests(options_.io_timeout);  // until they have told their clients
    server_->stop();
    if (listener_.joinable()) listener_.join();
  }

 private:
  // Until none runs, or the time has passed.
  void wait_for_requests(std::chrono::seconds time) const {
    const auto end = std::chrono::steady_clock::now() + time;
    while (active_ > 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  void configure() {
    server_->set_keep_alive_max_count(1000);
    server_->set_tcp_nodelay(true);
    // Not SO_REUSEPORT, with which two servers would share a port without a word.
    server_->set_socket_options([](socket_t socket) {
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    });
    server_->set_default_headers({{"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "no-store"}});
    server_->Get(
        ".*", [this](const httplib::Request& request, httplib::Response& response) { answer(request, "", response); });
    const auto with_body = [this](const httplib::Request& request, httplib::Response& response,
                                  const httplib::ContentReader& reader) {
      std::string body;
      // Without either there is no body: httplib would read on until the connection ends.
      if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding"))
        return answer(request, body, response);
      // A body in chunks has no length that could be refused before.
      const bool is_whole = reader([&](const char* data, size_t nbytes) {
        if (body.size() + nbytes > options_.body_nbytes) return false;
        body.append(data, nbytes);
        return true;
      });
      if (!is_whole) {
        end_this_connection();  // the rest of the body is no request
        return set_error(
            ApiError(413, "invalid_request_error", "body_too_large",
                     fmt::format("the body has more than {} bytes, or did not come whole", options_.body_nbytes)),
            response);
      }
      answer(request, body, response);
    };
    server_->Post(".*", with_body);
    server_->Put(".*", with_body);
    server_->Patch(".*", with_body);
    server_->Delete(
        ".*", [this](const httplib::Request& request, httplib::Response& response) { answer(request, "", response); });
    server_->set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty()) return;
      const int status = response.status;
      set_error(ApiError(status, status >= 500 ? "server_error" : "invalid_request_error", "http_error",
                         fmt::format("HTTP status {}", status)),
                response);
    });
  }

  void bind() {
    port_ = options_.port;
    const bool is_bound = port_ == 0 ? (port_ = server_->bind_to_any_port(options_.host)) > 0
                                     : server_->bind_to_port(options_.host, port_);
    TUTTI_CHECK_ENV(is_bound, "cannot listen at {}:{}; another program may do so, or the address is not of this host",
                    options_.host, options_.port);
  }

  // Browsers send what strangers' pages tell them to: a server that others cannot reach answers pages of its own alone.
  void check_origin(const httplib::Request& request) const {
    const std::string host = request.get_header_value("Host");
    if (is_loopback(options_.host) && !host.empty() && !is_loopback(without_port(host)))
      throw ApiError(403, "invalid_request_error", "wrong_host", fmt::format("the host '{}' is not this one", host));
    const std::string origin = request.get_header_value("Origin");
    if (!origin.empty() && origin != "http://" + host && origin != "https://" + host)
      throw ApiError(403, "invalid_request_error", "wrong_origin",
                     fmt::format("pages of '{}' may not ask here", origin));
  }

  void check_key(const httplib::Request& request) const {
    // The page and the signs of life tell nothing.
    if (options_.api_key.empty() || request.path == "/health" || request.path == "/") return;
    const std::string given = request.get_header_value("Authorization");
    constexpr std::string_view kBearer = "Bearer ";
    if (!given.starts_with(kBearer) || !is_same_key(std::string_view(given).substr(kBearer.size()), options_.api_key))
      throw ApiError(401, "authentication_error", "invalid_api_key",
                     "the header 'Authorization: Bearer KEY' is missing or wrong");
  }

  void answer(const httplib::Request& request, const std::string& body, httplib::Response& response) {
    // Counted until the last byte is written, for stop().
    const auto counted = std::shared_ptr<void>(nullptr, [this](void*) { --active_; });
    ++active_;
    try {
      check_origin(request);
      check_key(request);
      if (is_draining_ && request.path != "/health") throw overloaded("the server stops");
    } catch (const ApiError& error) {
      return set_error(error, response);
    }
    const Answer answer =
        api_.handle(request.method == "HEAD" ? "GET" : request.method, request.path, body, client_is_there);
    response.status = answer.status;
    if (answer.status == 503) response.set_header("Retry-After", "1");
    if (request.path == "/") response.set_header("Content-Security-Policy", std::string(kChatPagePolicy));
    if (answer.stream == nullptr) return response.set_content(answer.body, answer.content_type);
    response.set_chunked_content_provider(answer.content_type,
                                          [stream = answer.stream, counted](size_t, httplib::DataSink& sink) {
                                            const std::optional<std::string> events = stream->next_events(kPatience);
                                            if (!events) sink.done();
                                            else if (!events->empty())
                                              return sink.write(events->data(), events->size());
                                            return sink.is_writable();
                                          });
  }

  const HttpOptions options_;
  Api api_;
  const std::unique_ptr<httplib::Server> server_;
  int port_ = 0;
  std::atomic<int64_t> active_ = 0;
  std::atomic<bool> is_draining_ = false;
  std::mutex stopping_;
  std::thread listener_;
};

HttpServer::HttpServer(Backend& backend, ServedModel model, const HttpOptions& options)
    : implementation_(std::make_unique<Implementation>(backend, std::move(model), options)) {}
HttpServer::~HttpServer() = default;

int HttpServer::port() const { return implementation_->port(); }
void HttpServer::stop() { implementation_->stop(); }

std::string HttpServer::url() const {
  const std::string& host = implementation_->host();
  return fmt::format("http://{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]", port());
}

}  // namespace tutti::generate::serve
