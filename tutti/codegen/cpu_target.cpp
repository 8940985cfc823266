#include "tutti/codegen/cpu_target.h"

#include <cstdlib>

#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

constexpr std::string_view kNames[kNumCpuTargets] = {"avx2", "avx512", "avx512vnni", "avx512bf16"};
constexpr const char* kNeeds[kNumCpuTargets] = {"AVX2, FMA and BMI2", "AVX-512 (F, BW, DQ, VL, CD)", "AVX-512 VNNI",
                                                "AVX-512 BF16"};

// The best set of instructions of this processor, -1 when it has none of them. Each needs those before it.
int best_target() {
  const bool has[kNumCpuTargets] = {
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"),
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd"),
      __builtin_cpu_supports("avx512vnni") != 0,
      __builtin_cpu_supports("avx512bf16") != 0,
  };
  int best = -1;
  while (best + 1 < kNumCpuTargets && has[best + 1]) ++best;
  return best;
}

CpuTarget choose_target() {
  const int best = best_target();
  TUTTI_CHECK_ENV(best >= 0, "kernels need a processor with AVX2 and FMA (x86-64-v3); this one has not");
  const char* wish = std::getenv("TUTTI_CPU");
  return wished_target(wish ? wish : "", static_cast<CpuTarget>(best));
}

}  // namespace

CpuTarget wished_target(std::string_view wish, CpuTarget best) {
  if (wish.empty()) return best;
  for (int target = 0; target < kNumCpuTargets; ++target) {
    if (kNames[target] != wish) continue;
    TUTTI_CHECK(target <= static_cast<int>(best),
                "TUTTI_CPU={}: this processor has no {}; use TUTTI_CPU={} or unset it", wish,
                kNeeds[static_cast<size_t>(best) + 1], name_of(best));
    return static_cast<CpuTarget>(target);
  }
  throw UsageError(fmt::format("TUTTI_CPU={}: expected avx2, avx512, avx512vnni or avx512bf16", wish));
}

std::string_view name_of(CpuTarget target) { return kNames[static_cast<size_t>(target)]; }

CpuTarget cpu_target() {
  static const CpuTarget target = choose_target();
  return target;
}

}  // namespace tutti::codegen
