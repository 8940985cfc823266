// Packing of two bf16 operands for the chain of numerics contract N3, in pairs of neighbouring k.
#pragma once

#include "tutti/codegen/gemm/pack.h"

namespace tutti::codegen {

// As pack() of gemm_pack.h, for TileKind::bf16_chain and bf16_pairs. The source is bf16, or f32 whose elements are
// values of bf16.
void pack_bf16(const PackSource& source, int64_t k, int64_t lanes, TileKind kind, PackSide side, void* packed,
               int64_t width);

}  // namespace tutti::codegen
