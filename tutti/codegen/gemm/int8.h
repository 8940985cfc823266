// C = A B for int8 operands and an int32 result: the tiles of GEMM over pairs of k.
//
// A register holds two neighbouring k of a column as 16-bit integers; one instruction multiplies them with those of a
// row and adds the two products, which fit 32 bits whatever they are. All sums are exact modulo 2^32, so no order
// matters.
#pragma once

#include "tutti/codegen/gemm/gemm.h"

namespace tutti::codegen {

// c[m, n] = a[m, k] b[k, n]; a and b are i8 with any strides, c is i32. Sums wrap modulo 2^32, which up to k = 131071
// none can reach. k = 0 stores zeros. With an odd k both operands are copied, a zero behind each row and column.
// options.consumer is not supported. UsageError for negative sizes, other dtypes, a consumer, or c without memory.
void int8_gemm(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b, const GemmResult& c,
               const GemmOptions& options = {});

}  // namespace tutti::codegen
