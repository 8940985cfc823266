// Checks whether a kernel modifies its inputs in ways that its op does not declare. For debugging custom ops:
// TUTTI_CHECK_EFFECTS=1.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/ops/engine/op_def.h"

namespace tutti {

// Construct it before a kernel runs; `call` must outlive it. Costs one test when the variable is not set, and a pass
// over every input before and after the run when it is.
class EffectCheck {
 public:
  explicit EffectCheck(const OpCall& call) : call_(call) {
    if (is_on()) [[unlikely]]
      look();
  }
  // Call after the kernel has run. UsageError, naming the op and the input, when its elements were written without
  // being declared in `writes`, or its memory was exchanged without being declared in `becomes`.
  void finish() const {
    if (!before_.empty()) [[unlikely]]
      compare();
  }
  static bool is_on();

 private:
  struct State {
    Tensor view;     // the input as it was
    uint64_t bytes;  // hash of its elements; 0: declared as written
    bool has_memory;
  };
  void look();
  void compare() const;
  bool is_written(size_t input) const;

  const OpCall& call_;
  std::vector<State> before_;
};

}  // namespace tutti
