// Guards: the conditions on the arguments of a call under which a compiled specialization can be reused.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/graph/tree.h"
#include "tutti/runtime/function_ref.h"

namespace tutti {
class WrapperForm;
}  // namespace tutti

namespace tutti::graph {

// A wrapper is described by its own dtype, requires_grad, sizes and strides, and by where its inside lies in memory.
struct TensorGuard {
  DType dtype;
  Device device;
  bool requires_grad;
  int8_t phase;         // the first element's byte offset in its storage, modulo 8
  int32_t same;         // the first argument that is this tensor, possibly itself
  int32_t alias;        // the first argument on the same storage, possibly itself
  int64_t alias_bytes;  // from that argument's first element to this one's
  Extents sizes, strides;
  Extents inside_strides = {};  // of wrappers
};

struct Guards {
  bool grad_enabled = false;
  int64_t token_grain = 0;  // leaves of sums over tokens
  std::string plain;
  std::vector<int64_t> sizes;
  std::vector<TensorGuard> tensors;
  std::vector<std::shared_ptr<const WrapperForm>> forms;  // of those that are wrappers; empty: none is

  // The guards for calls with these arguments.
  static Guards of(const Leaves& arguments);
  // Whether the guards hold for these arguments; does not allocate.
  bool hold(const Leaves& arguments) const;
  // The same for a family: strides, and sizes for which `is_free` returns true, may differ. tensor kSizes stands for
  // the sizes that are arguments themselves.
  static constexpr int kSizes = -1;
  bool hold(const Leaves& arguments, FunctionRef<bool(int tensor, int dim)> is_free) const;
  // The first guard that does not hold, with both values; "" when all hold.
  std::string first_difference(const Leaves& arguments) const;
};

}  // namespace tutti::graph
