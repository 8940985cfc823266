// Words that the tests of control flow share.
#pragma once

#include "tests/graph/support/places.h"
#include "tests/graph/support/same.h"
#include "tutti/core/error.h"

namespace tutti::graph_test {

using Span = std::span<const Tensor>;

inline Tensor scalar(bool value) { return Tensor::scalar(value); }

// The message of the error that fn() throws; a failure of the test when it throws none.
template <class Error, class Fn>
std::string error_of(Fn fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

inline void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace tutti::graph_test
