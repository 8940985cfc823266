// The errors of the HTTP interface, in the form that clients of OpenAI's know.
#pragma once

#include <string>

#include "tutti/core/error.h"

namespace tutti::generate::serve {

// What a request is answered with instead.
class ApiError : public Error {
 public:
  ApiError(int status, std::string type, std::string code, const std::string& message)
      : Error(message), status_(status), type_(std::move(type)), code_(std::move(code)) {}

  int status() const { return status_; }
  const std::string& type() const { return type_; }
  const std::string& code() const { return code_; }

 private:
  int status_;
  std::string type_;
  std::string code_;
};

// 400: the request is wrong. `code` is a word for programs, such as "context_length_exceeded".
ApiError bad_request(const std::string& message, const std::string& code = "invalid_value");
// 503: it may be right later.
ApiError overloaded(const std::string& message);

// 499, as proxies count it: nobody reads this answer.
ApiError client_left();

// {"error":{"message","type","code"}}
std::string error_json(const ApiError& error);

}  // namespace tutti::generate::serve
