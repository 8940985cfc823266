// The message of an InternalError.
#pragma once

#include <string>

#include "tutti/core/error.h"

namespace tutti::plan_test {

// The text of the InternalError that fn() throws; "no error" when it throws none.
template <class Fn>
std::string internal_error_of(Fn fn) {
  try {
    fn();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace tutti::plan_test
