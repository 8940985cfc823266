// How it ends when the ranks' calls do not fit together.
#pragma once

#include <span>
#include <string>

#include "tutti/comm/call_record.h"
#include "tutti/core/error.h"

namespace tutti::comm {

// The ranks' calls differ in nothing but the tensors of their lists.
class ListMismatchError : public UsageError {
 public:
  using UsageError::UsageError;
};

// Throws ListMismatchError or, when anything else differs, UsageError, with mismatch_message(). `records` holds the record of
// each rank, so all ranks throw the same.
[[noreturn]] void throw_mismatch(const std::string& group, std::span<const CallRecord> records);

}  // namespace tutti::comm
