// Whether ranks may be processes.
#pragma once

#include <string_view>

namespace tutti::comm {

// "" when this build has the launcher, the stores over TCP, the transports between processes and the GPU engines; else
// why it has not and what to do.
std::string_view why_not_distributed();

}  // namespace tutti::comm
