// The outcome of a run of a random program, and whether two runs have the same.
#pragma once

#include <string>
#include <typeinfo>
#include <vector>

#include "tests/graph/support/places.h"
#include "tutti/core/error.h"
#include "tutti/core/number.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/tensor/tensor.h"

namespace tutti::graph_test {

// The same dtype, sizes and bits; which NaN it is is left open (docs/numerics.md).
bool same_but_for_nans(const Tensor& a, const Tensor& b);

// Tensors, or what the run threw.
struct Outcome {
  std::vector<Tensor> made;
  std::string error;  // class, op and text; "" when it returned
};

// Runs fn with the keys that call number `call` draws.
template <class Fn>
Outcome outcome_of(uint64_t call, Fn fn) {
  RankContext::current().next_draw = call * 1000;
  try {
    return {fn(), ""};
  } catch (const IntegerDivideByZero& e) {
    return {{}, "integers: " + without_place(e.what())};
  } catch (const UsageError& e) {
    return {{}, "usage: " + without_place(e.what())};
  } catch (const std::exception& e) {
    return {{}, fmt::format("{}: {}", typeid(e).name(), e.what())};
  }
}

}  // namespace tutti::graph_test
