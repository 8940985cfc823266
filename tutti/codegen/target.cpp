#include "tutti/codegen/target.h"

#include "tutti/core/error.h"

namespace tutti::codegen {

CpuTarget cpu_target_of(Target target) {
  TUTTI_CHECK(target.device == DeviceKind::cpu && target.features < kNumCpuTargets,
              "no code is generated for {}; kernels are compiled for the cpu", name_of(target));
  return static_cast<CpuTarget>(target.features);
}

std::string name_of(Target target) {
  if (target.device == DeviceKind::cpu && target.features < kNumCpuTargets)
    return fmt::format("cpu {}", name_of(static_cast<CpuTarget>(target.features)));
  return fmt::format("{} with the instructions {}", to_string(Device{target.device}), target.features);
}

}  // namespace tutti::codegen
