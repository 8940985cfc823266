// The error of linear cross entropy in chunks when its bound is too small, with the bytes that its smallest chunks
// take.
#pragma once

#include <cstdint>

#include "tutti/core/error.h"

namespace tutti::chunked_loss {

class BoundError : public UsageError {
 public:
  BoundError(const std::string& message, int64_t least_bytes) : UsageError(message), least_bytes_(least_bytes) {}
  // More may be needed for another part of the computation.
  int64_t least_bytes() const { return least_bytes_; }

 private:
  int64_t least_bytes_;
};

}  // namespace tutti::chunked_loss
