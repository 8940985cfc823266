#include "bench/process_memory.h"

#include <fstream>
#include <string>

namespace tutti::bench {

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key; status.ignore(1 << 16, '\n')) {
    double kib = 0;
    if (key == "VmRSS:" && status >> kib) memory.now_mbytes = kib / 1024;
    if (key == "VmHWM:" && status >> kib) memory.peak_mbytes = kib / 1024;
  }
  return memory;
}

void restart_memory_peak() {
  // 5 resets VmHWM (proc_pid_clear_refs(5)).
  std::ofstream("/proc/self/clear_refs") << 5;
}

}  // namespace tutti::bench
