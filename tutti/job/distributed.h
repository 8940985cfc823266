// Whether this build supports ranks in several processes.
#pragma once

#include <string_view>

namespace tutti::comm {

// "" when this build has the launcher, the TCP store, the transports between processes and the GPU engines; else the reason why
// not, and what to do.
std::string_view why_not_distributed();

}  // namespace tutti::comm
