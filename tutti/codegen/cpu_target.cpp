#include <cstdlib>
#include <string_view>

#include "tutti/codegen/kernel.h"
#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
}

CpuTarget choose_target() {
  TUTTI_CHECK_ENV(has_avx2(), "kernels need a processor with AVX2 and FMA (x86-64-v3); this one has not");
  const char* wish = std::getenv("TUTTI_CPU");
  if (!wish || !*wish) return has_avx512() ? CpuTarget::avx512 : CpuTarget::avx2;
  for (const CpuTarget target : {CpuTarget::avx2, CpuTarget::avx512}) {
    if (name_of(target) != wish) continue;
    TUTTI_CHECK(target != CpuTarget::avx512 || has_avx512(),
                "TUTTI_CPU=avx512: this processor has no AVX-512 (F, BW, DQ, VL, CD); use TUTTI_CPU=avx2 or unset it");
    return target;
  }
  throw UsageError(fmt::format("TUTTI_CPU={}: expected avx2 or avx512", wish));
}

}  // namespace

std::string_view name_of(CpuTarget target) { return target == CpuTarget::avx512 ? "avx512" : "avx2"; }

CpuTarget cpu_target() {
  static const CpuTarget target = choose_target();
  return target;
}

}  // namespace tutti::codegen
