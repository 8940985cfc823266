#include "tutti/train/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "tutti/codegen/kernel.h"
#include "tutti/core/error.h"

namespace tutti::train {

static std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

std::vector<std::pair<std::string, std::string>> machine_facts() {
  cpu_set_t set;
  const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  utsname system{};
  uname(&system);
  return {{"CPU", cpu_model()},
          {"Cores", std::to_string(cores)},
          {"Memory", fmt::format("{:.1f} GiB", memory / (1 << 30))},
          {"Instruction set", std::string(name_of(codegen::cpu_target()))},
          {"System", fmt::format("{} {}", system.sysname, system.release)}};
}

}  // namespace tutti::train
