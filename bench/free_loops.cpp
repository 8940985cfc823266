#include "bench/free_loops.h"

#include <cstddef>

#include "tutti/codegen/cpu_target.h"

namespace tutti::bench {
namespace {

#pragma GCC push_options
#pragma GCC optimize("O3", "fp-contract=fast")
namespace avx2 {
typedef float V __attribute__((vector_size(32)));
typedef int I __attribute__((vector_size(32)));
#include "bench/free_loops_body.h"
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC optimize("O3", "fp-contract=fast")
#pragma GCC target("arch=x86-64-v4", "prefer-vector-width=512")
namespace avx512 {
typedef float V __attribute__((vector_size(64)));
typedef int I __attribute__((vector_size(64)));
#include "bench/free_loops_body.h"
}  // namespace avx512
#pragma GCC pop_options

}  // namespace

const FreeLoops& free_loops() {
  return codegen::has_wide_registers(codegen::cpu_target()) ? avx512::kLoops : avx2::kLoops;
}

}  // namespace tutti::bench
