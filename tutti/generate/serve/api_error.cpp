#include "tutti/generate/serve/api_error.h"

#include "tutti/runtime/json_writer.h"

namespace tutti::generate::serve {

ApiError bad_request(const std::string& message, const std::string& code) {
  return {400, "invalid_request_error", code, message};
}

ApiError overloaded(const std::string& message) { return {503, "overloaded_error", "overloaded", message}; }

ApiError client_left() { return {499, "invalid_request_error", "client_left", "the client has left"}; }

std::string error_json(const ApiError& error) {
  JsonWriter json;
  json.object().key("error").object();
  json.member("message", error.what()).member("type", error.type()).member("code", error.code()).end().end();
  return json.take();
}

}  // namespace tutti::generate::serve
