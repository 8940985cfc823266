// Packing of strips of A whose rows are neighbours in memory, several at a time: they share the lines of A.
#pragma once

#include "tutti/codegen/gemm/pack.h"

namespace tutti::codegen {

// Packs the first of `strips` strips as pack() does, `strip_bytes` apart; returns how many. There is a way for strips
// of eight rows of f32, or of pairs of bf16 with an even k; otherwise none is packed.
int64_t pack_neighbouring_strips(const PackSource& source, int64_t k, int64_t rows, int64_t strips, TileKind kind,
                                 void* packed, int64_t strip_bytes);

}  // namespace tutti::codegen
