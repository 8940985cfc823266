// Facts about the machine, for reports and `tutti env`.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tutti::train {

// "CPU" -> "AMD EPYC ...", cores this process may use, memory, instruction set that kernels are made for.
std::vector<std::pair<std::string, std::string>> machine_facts();

}  // namespace tutti::train
