// Guards: what must hold of the arguments of a call for a compiled function to be used again.
#pragma once

#include <string>
#include <vector>

#include "tutti/graph/tree.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::graph {

struct TensorGuard {
  DType dtype;
  Device device;
  bool requires_grad;
  int8_t phase;           // of the first element's address within 8 bytes of its storage
  int32_t same;           // the first argument that is this tensor, maybe itself
  int32_t alias;          // the first argument on the same storage, maybe itself
  int64_t alias_bytes;    // from that argument's first element to this one's
  Extents sizes, strides;
  friend bool operator==(const TensorGuard&, const TensorGuard&) = default;
};

struct Guards {
  bool grad_enabled = false;
  int64_t token_grain = 0;  // leaves of sums over tokens
  std::string plain;
  std::vector<int64_t> sizes;
  std::vector<TensorGuard> tensors;

  // Those of a call with these arguments.
  static Guards of(const Leaves& arguments);
  // Compares without making guards for the call; no allocation.
  bool hold(const Leaves& arguments) const;
  // The same for a family of sizes: those that `is_free` names, and all strides, may be others. tensor kSizes: the sizes
  // that are arguments themselves.
  static constexpr int kSizes = -1;
  bool hold(const Leaves& arguments, FunctionRef<bool(int tensor, int dim)> is_free) const;
  // The first thing that does not hold, with both values; "" when all do.
  std::string first_difference(const Leaves& arguments) const;
};

}  // namespace tutti::graph
