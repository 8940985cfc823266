// Looks whether a kernel does more to its inputs than its op declares. For debugging custom ops: TUTTI_CHECK_EFFECTS=1.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/ops/engine/op_def.h"

namespace tutti {

// Lives around the run of a kernel; `call` must outlive it. Costs one test when the variable is not set, and a pass over
// every input before and after when it is.
class EffectCheck {
 public:
  explicit EffectCheck(const OpCall& call) : call_(call) {
    if (is_on()) [[unlikely]] look();
  }
  // UsageError naming op, input and what was done to it: its elements written without `writes`, or its memory exchanged
  // without `becomes`.
  void finish() const {
    if (!before_.empty()) [[unlikely]] compare();
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
