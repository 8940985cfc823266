// httplib's server with connections of bounded time and bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace httplib {
class Server;
struct Response;
}  // namespace httplib

namespace tutti::generate::serve {

class ApiError;

struct ConnectionLimits {
  int64_t connections = 64;  // that have a worker; more are told 503
  size_t body_nbytes = size_t{4} << 20;
  std::chrono::milliseconds idle_time{2000};      // between two requests
  std::chrono::milliseconds request_time{30000};  // for a request to come whole
  std::chrono::milliseconds write_time{10000};    // for a client to take a part of an answer
};

// A server in which connections that are too many are told so and closed, whether they ask for something or not, by
// workers beside those of the others (worker_pool.h). A body that is announced as too large, in an encoding or as a
// form is refused before it is read, and a connection ends with a request whose body is not read. Requests and parts of
// answers have a time as a whole, so that clients which send or read a byte now and then are dropped as those that do
// nothing.
std::unique_ptr<httplib::Server> make_server(const ConnectionLimits& limits);

void set_error(const ApiError& error, httplib::Response& response);

// The connection that the calling thread answers ends with that answer.
void end_this_connection();
// Whether its client has not closed it.
bool client_is_there();

}  // namespace tutti::generate::serve
