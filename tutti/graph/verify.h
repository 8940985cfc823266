// Compares a compiled call with an eager run of the same function: values, writes and shared memory must agree.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/graph/specialization.h"

namespace tutti::graph {

// One comparison. Meanwhile no other thread may use the arguments or the tensors that the function captures.
class Verification {
 public:
  // Runs the function eagerly on copies of the arguments, which share memory with each other as the arguments do. Its
  // writes to captured tensors are recorded and undone. UsageError for tensors that are not on the host.
  Verification(const Specialization& specialization, const Leaves& arguments, TraceFn fn);
  // Call after the compiled call. Throws CaptureError, naming the first difference: a result and the op that computed
  // it, an argument, a captured tensor or its gradient.
  void compare(const std::string& function, std::span<const Tensor> results) const;

 private:
  std::string difference(std::span<const Tensor> results) const;
  std::string maker_of(size_t result) const;

  struct Held {
    Tensor tensor;
    Tensor after, grad_after;  // as the eager run left them
  };
  const Specialization& specialization_;
  const Leaves& arguments_;
  std::vector<Tensor> copies_;         // of the arguments
  std::vector<Tensor> results_;        // of the eager run
  std::optional<std::string> thrown_;  // by the eager run
  std::vector<Held> held_;
};

}  // namespace tutti::graph
