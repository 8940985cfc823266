// What capturing a function can fail with.
#pragma once

#include "tutti/core/error.h"

namespace tutti {

// Capturing went wrong: a value was read in a trace, a tensor left its trace, ... The message begins with a code that
// stays the same, TUTTI-CAPTURE-nnn (docs/compiler.md lists them).
class CaptureError : public UsageError {
 public:
  CaptureError(int code, const std::string& text) : UsageError(fmt::format("TUTTI-CAPTURE-{:03} {}", code, text)) {}
};

}  // namespace tutti
