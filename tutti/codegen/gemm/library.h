// Products of other libraries. Each is a plugin of its own (library/*.cpp), opened when fast mode first asks for it:
// the program is linked with none of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tutti/codegen/gemm/gemm.h"

namespace tutti::codegen {

struct GemmLibrary {
  const char* name;  // with its version
  // Whether it multiplies these types with instructions that this processor has for them.
  bool (*multiplies)(DType a, DType b, DType c);
  // c[m, n] = a[m, k] b[k, n] on the calling thread alone, all sizes from 1 to 2^31 - 1. Of a, b and c one stride is 1
  // and the other no less than what it steps over. Null, or what the library complains of: text that stays until the
  // thread's next call.
  const char* (*multiply)(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
                          const GemmResult& c);
};

// The function that a plugin exports under this name.
using GemmLibraryFunction = const GemmLibrary* (*)();
inline constexpr const char* kGemmLibraryFunctionName = "tutti_gemm_library";

// The libraries of this build that can be opened, always in the same order. Any thread.
std::span<const GemmLibrary* const> gemm_libraries();
// Why other libraries of this build cannot be opened, for reports.
std::span<const std::string> closed_gemm_libraries();

}  // namespace tutti::codegen
