// The text of the error that a wrong use gives.
#pragma once

#include <string>

#include "tutti/core/error.h"

namespace tutti {

// The message of the UsageError of fn(); "no error" when it throws none.
template <class Fn>
std::string message_of(Fn fn) {
  try {
    fn();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tutti
