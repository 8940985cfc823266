// Instruction sets of kernels.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti::codegen {

// The instruction set kernels are made for: TUTTI_CPU=avx2|avx512|avx512vnni|avx512bf16, else the best this machine
// has. Each has the instructions of those before it; the last two add dot products of integers and of bf16, which only
// matrix products use.
enum class CpuTarget : uint8_t { avx2, avx512, avx512vnni, avx512bf16 };
inline constexpr int kNumCpuTargets = 4;
CpuTarget cpu_target();
// The one that TUTTI_CPU = `wish` asks for on a processor that has `best`; "" asks for that. UsageError for other names
// and for what it does not have.
CpuTarget wished_target(std::string_view wish, CpuTarget best);
std::string_view name_of(CpuTarget target);
constexpr bool has_wide_registers(CpuTarget target) { return target >= CpuTarget::avx512; }
// The same without dot products: what kernels other than matrix products are compiled for.
constexpr CpuTarget without_dots(CpuTarget target) {
  return has_wide_registers(target) ? CpuTarget::avx512 : CpuTarget::avx2;
}

}  // namespace tutti::codegen
