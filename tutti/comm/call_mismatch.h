// Errors for calls of the ranks that do not match.
#pragma once

#include <span>
#include <string>

#include "tutti/core/error.h"
#include "tutti/diagnose/call_record.h"

namespace tutti::comm {

// The ranks' calls differ only in the tensors of their lists.
class ListMismatchError : public UsageError {
 public:
  using UsageError::UsageError;
};

// A rank has refused its call because of its arguments.
class RefusedCallError : public UsageError {
 public:
  using UsageError::UsageError;
};

// The ranks have told each other in the call what is wrong with it, so all of them throw this, and the group goes on.
class AgreedError : public UsageError {
 public:
  using UsageError::UsageError;
};

// Throws RefusedCallError, ListMismatchError or, if anything else differs, UsageError, with mismatch_message().
// `records` holds the record of each rank, so all ranks throw the same error.
[[noreturn]] void throw_mismatch(const std::string& group, std::span<const CallRecord> records);

}  // namespace tutti::comm
