// A compiled call beside an eager run of the same function: values, writes and sharing of memory must agree.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/graph/specialization.h"

namespace tutti::graph {

// One check. Nobody else may use the arguments, or what the function holds, meanwhile.
class Verification {
 public:
  // Runs the function on copies of the arguments, which share memory among themselves as the arguments do. What it does to
  // tensors that it holds is noted and taken back. Host tensors only: UsageError.
  Verification(const Specialization& specialization, const Leaves& arguments, TraceFn fn);
  // After the compiled call. CaptureError that names the first difference: a result and the op that made it, an argument,
  // a held tensor or its gradient.
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
  std::vector<Tensor> copies_;   // of the arguments
  std::vector<Tensor> results_;  // of the eager run
  std::optional<std::string> thrown_;  // by the eager run
  std::vector<Held> held_;
};

}  // namespace tutti::graph
