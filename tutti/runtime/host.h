// Facts about the machine that the process runs on.
#pragma once

#include <sys/types.h>

#include <string>

namespace tutti {

// The number of cores that process `pid` (0: this one) may run on; at least 1.
int usable_cores(pid_t pid = 0);

// The host name, at most 255 bytes; "unknown host" when there is none.
std::string host_name();

}  // namespace tutti
