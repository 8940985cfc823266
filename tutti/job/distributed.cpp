#include "tutti/job/distributed.h"

#include "tutti/core/error.h"

namespace tutti::comm {

std::string_view why_not_distributed() {
  return process_services().empty() ? "this build has TUTTI_DISTRIBUTED=OFF; configure with -DTUTTI_DISTRIBUTED=ON"
                                    : "";
}

void throw_left_out(const std::string& what) {
  throw UsageError(fmt::format("{} is left out: {}", what, why_not_distributed()));
}

const ProcessServices& services_for(const std::string& what) {
  if (process_services().empty()) throw_left_out(what);
  return *process_services()[0];
}

}  // namespace tutti::comm
