// Tensors and comparisons for the tests of functional collectives. What is wrong is thrown, because ranks are threads:
// run_ranks throws it again in the test.
#pragma once

#include <string>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::functional {

// Values that tell the rank and the place; small enough to be exact in bf16 sums.
Tensor marked(int rank, const Extents& sizes, DType dtype = DType::f32);
// In logical order; waits first.
std::vector<double> values(const Tensor& t);
void expect_same(const Tensor& actual, const Tensor& expected);
// Returns a hash of the whole storage.
std::string bytes_of(const Tensor& t);

// The text of the UsageError that fn throws.
template <class Fn>
std::string refusal_of(Fn fn) {
  try {
    fn();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

#define EXPECT_REFUSED(text, ...)                                                                  \
  do {                                                                                             \
    const std::string message = refusal_of([&] { __VA_ARGS__; });                                  \
    TUTTI_CHECK(message.find(text) != std::string::npos, "'{}' does not say '{}'", message, text); \
  } while (false)

}  // namespace tutti::comm::functional
