#include "tutti/runtime/host.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace tutti {

int usable_cores(pid_t pid) {
  cpu_set_t set;
  return sched_getaffinity(pid, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

std::string host_name() {
  char name[256] = "";
  return gethostname(name, sizeof name - 1) == 0 && name[0] ? name : "unknown host";
}

}  // namespace tutti
