// The HTTP interface on a socket.
//
// Each connection has a worker while it is open: its request is read, answered or streamed, and the next one awaited
// for a few seconds. Connections beyond `connections` are told 503. A client that does not read is dropped after
// `io_timeout`, one that does not send its request within `request_time`, and one that leaves ends its request. stop()
// lets requests that run end within `drain`, and ends the others.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "tutti/generate/serve/api.h"

namespace tutti::generate::serve {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 0;              // 0: a free one
  std::string api_key = {};  // "": everybody may ask; else requests need "Authorization: Bearer KEY"
  size_t body_nbytes = size_t{4} << 20;
  int64_t connections = 64;
  std::chrono::seconds io_timeout{10};    // for a client to take a part of an answer
  std::chrono::seconds request_time{30};  // for a request to come whole
  std::chrono::seconds drain{30};
  ApiOptions api = {};
};

// Its methods may be called by any thread.
class HttpServer {
 public:
  // Binds the socket and begins to answer, by threads of its own. EnvironmentError when the address cannot be bound,
  // UsageError for an address other than loopback without a key. Backend and tokenizer must outlive it.
  HttpServer(Backend& backend, ServedModel model, const HttpOptions& options);
  // Stops as stop() does.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  std::string url() const;
  // Takes no more requests, and returns when the running ones have ended.
  void stop();

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace tutti::generate::serve
