// The instruction set that the code of a tile is compiled for.
#pragma once

#include <algorithm>

#include "tutti/codegen/gemm/tile_kind.h"

namespace tutti::codegen {

// On a processor with `target`. Only what has dot products is compiled for the instruction sets that add them.
constexpr CpuTarget code_target_of(TileKind kind, CpuTarget target) {
  if (kind == TileKind::bf16_pairs) return target;
  return is_integer(kind) ? std::min(target, CpuTarget::avx512vnni) : without_dots(target);
}

// Whether kernels on a processor of `level` may be code that was compiled for `target`: that of its registers, and what
// its dot units add, first of integers and then of bf16.
constexpr bool is_code_of(CpuTarget level, CpuTarget target) {
  return target <= level && without_dots(target) == without_dots(level);
}

}  // namespace tutti::codegen
