// The memory of a process, counted as the comparisons with other programs count it for both sides: resident pages,
// whoever allocated them.
#pragma once

namespace tutti::bench {

struct ProcessMemory {
  double now_mbytes = 0;   // VmRSS of /proc/self/status
  double peak_mbytes = 0;  // VmHWM: the most since the process began, or since restart_memory_peak()
};

ProcessMemory process_memory();

// From now on the peak counts anew. Where the kernel does not allow that, it stays the peak of the process.
void restart_memory_peak();

}  // namespace tutti::bench
