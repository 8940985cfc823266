// Facts about the machine, for reports and `tutti env`.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

// Names and values such as "CPU" -> "AMD EPYC ...": the CPU, the cores this process may use, memory, and the
// instruction set that kernels are compiled for.
std::vector<std::pair<std::string, std::string>> machine_facts();

// The memory this process may use, in bytes: that of the machine, or the limit of its control group if that is lower.
int64_t machine_memory();

}  // namespace tutti::train
