// C = A B for a B that exists in another form, such as codes, and is made f32 as its panels are packed: the tiles, the
// summation order and the threads of gemm(), and no copy of B in f32.
#pragma once

#include <cstdint>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/codegen/gemm/decoded_block.h"
#include "tutti/codegen/gemm/gemm.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::codegen {

using GemmDecoder = FunctionRef<void(const GemmDecodedBlock&)>;

struct DecodedProduct {
  int64_t m, n, k;
  GemmOperand a;                // f32, bf16 or f16
  const ContractionTree& tree;  // of k > 0
  CpuTarget target = cpu_target();
};

// Every element of C, in f32, is handed to the consumer once, as gemm() hands on a C without memory. Both functions are
// called from the threads of the pool, and must not call gemm().
void decoded_gemm(const DecodedProduct& product, const GemmDecoder& decoder, const GemmConsumer& consumer,
                  ThreadPool& pool);

}  // namespace tutti::codegen
