// Codes of several rows as columns of f32, as the tiles of a product read them. Private to the products of codes.
#pragma once

#include "tutti/codegen/codes/code_lanes.h"
#include "tutti/codegen/gemm/decoded_block.h"

namespace tutti::codegen::codes {

// A block of the right operand whose columns are the rows of codes; `c` and `lanes` are those of its first column on.
void decode_block(const CodeColumns& c, const ByteLanes& lanes, const GemmDecodedBlock& block);
void decode_block(const CodeColumns& c, const E4m3Lanes& lanes, const GemmDecodedBlock& block);
void decode_block(const CodeColumns& c, const NibbleLanes& lanes, const GemmDecodedBlock& block);

}  // namespace tutti::codegen::codes
