// What the functions of an interface in C have told a thread last.
#pragma once

#include <string>

#include "tutti/deploy/tutti_runtime.h"

namespace tutti::deploy {

// One for each thread and interface.
class LastError {
 public:
  // Returns the code.
  tutti_code keep(tutti_code code, const char* text) noexcept {
    try {
      text_ = text;
      error_ = {code, text_.c_str()};
    } catch (...) {
      error_ = {code, "out of memory"};
    }
    return code;
  }
  const tutti_error* get() const { return &error_; }

 private:
  std::string text_;
  tutti_error error_{TUTTI_OK, ""};
};

}  // namespace tutti::deploy
