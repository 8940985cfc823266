// The processor that a kernel is compiled for.
#pragma once

#include <string>

#include "tutti/codegen/cpu_target.h"
#include "tutti/core/device.h"

namespace tutti::codegen {

// A kind of device and the instructions that its code generator may use, as a number of that generator's own. Those of
// the cpu are a CpuTarget, which converts.
struct Target {
  constexpr Target(DeviceKind kind, uint8_t instructions) : device(kind), features(instructions) {}
  constexpr Target(CpuTarget target) : Target(DeviceKind::cpu, static_cast<uint8_t>(target)) {}
  constexpr bool operator==(const Target&) const = default;

  DeviceKind device;
  uint8_t features;
};

// The instruction set of a target of the cpu. UsageError for another device.
CpuTarget cpu_target_of(Target target);
// Such as "cpu avx512".
std::string name_of(Target target);

}  // namespace tutti::codegen
