// The error of a failed capture.
#pragma once

#include "tutti/core/error.h"

namespace tutti {

// A function could not be captured, for example because it read the elements of a tensor, or a tensor outlived its
// trace. The message begins with a stable code, TUTTI-CAPTURE-nnn; docs/compiler.md lists them.
class CaptureError : public UsageError {
 public:
  CaptureError(int code, const std::string& text) : UsageError(fmt::format("TUTTI-CAPTURE-{:03} {}", code, text)) {}
};

}  // namespace tutti
