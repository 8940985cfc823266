// The times of a packaged call's steps.
#pragma once

#include <cstdint>
#include <functional>

#include "tutti/runtime/trace/kernel_info.h"

namespace tutti::deploy {

// A kernel or a library call that a packaged call has run.
struct StepTime {
  const KernelInfo& kernel;  // with the id and the source lines of the compiled function
  const char* line;          // of the user, "" where none is known
  int64_t begin_ns, nanoseconds;
};
using StepObserver = std::function<void(const StepTime&)>;

}  // namespace tutti::deploy
