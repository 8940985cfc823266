// What a process may ask about the machine it runs on.
#pragma once

#include <sys/types.h>

#include <string>

namespace tutti {

// Cores that process `pid` (0: this one) may run on; at least 1.
int usable_cores(pid_t pid = 0);

// The name the machine calls itself, at most 255 bytes; "unknown host" when it has none.
std::string host_name();

}  // namespace tutti
