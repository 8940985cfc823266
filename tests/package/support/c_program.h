// examples/run_package, the program in C that runs packages, as a process.
#pragma once

#include <string>

#include "tutti/tensor/tensor.h"

namespace tutti::package_test {

struct Outcome {
  int status;
  std::string text;  // both outputs
};
Outcome run_command(const std::string& command);

extern const std::string kProgram;
// In front of it: neither the cache nor the code generator is within its reach.
inline const std::string kAlone = "env TUTTI_CACHE_LIMIT_MB=0 TUTTI_LLVM_PLUGIN=/nowhere ";

// In front of a program: an emulator whose processor has AVX2 and no AVX-512, or another one. Empty where it is
// missing, which is a failure in CI.
std::string emulated(const std::string& processor = "Haswell");

// The argument that the program makes.
Tensor pattern(const Extents& sizes, DType dtype);
// How the program prints the elements of a result.
std::string fnv(const Tensor& result);

}  // namespace tutti::package_test
