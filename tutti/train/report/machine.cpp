#include "tutti/train/report/machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tutti/codegen/cpu_target.h"
#include "tutti/core/error.h"
#include "tutti/runtime/host.h"

namespace tutti::train {

static std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

int64_t machine_memory() {
  const int64_t built_in = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  int64_t limit = 0;  // the file holds "max", or is not there, when nothing limits
  std::ifstream("/sys/fs/cgroup/memory.max") >> limit;
  return limit > 0 ? std::min(limit, built_in) : built_in;
}

std::vector<std::pair<std::string, std::string>> machine_facts() {
  utsname system{};
  uname(&system);
  return {{"CPU", cpu_model()},
          {"Cores", std::to_string(usable_cores())},
          {"Memory", fmt::format("{:.1f} GiB", static_cast<double>(machine_memory()) / (1 << 30))},
          {"Instruction set", std::string(name_of(codegen::cpu_target()))},
          {"System", fmt::format("{} {}", system.sysname, system.release)}};
}

}  // namespace tutti::train
