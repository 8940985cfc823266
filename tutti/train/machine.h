// Facts about the machine, for reports and `tutti env`.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

// "CPU" -> "AMD EPYC ...", cores this process may use, memory, instruction set that kernels are made for.
std::vector<std::pair<std::string, std::string>> machine_facts();

// Bytes of memory this process may use: what is built in, or the limit of its control group when that is lower.
int64_t machine_memory();

}  // namespace tutti::train
