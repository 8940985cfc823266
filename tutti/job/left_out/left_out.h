// For the sources in this folder, which are stubs for parts that a build leaves out: they define the functions of the same
// headers.
#pragma once

#include "tutti/core/error.h"
#include "tutti/job/distributed.h"

namespace tutti::comm {

// "the launcher is left out: this build has TUTTI_DISTRIBUTED=OFF; ..."; `own_reason` is that of a part which is missing in
// a build that has the others.
[[noreturn]] inline void throw_left_out(const std::string& what, std::string_view own_reason = "") {
  const std::string_view reason = why_not_distributed();
  throw UsageError(fmt::format("{} is left out: {}", what, reason.empty() ? own_reason : reason));
}

}  // namespace tutti::comm
