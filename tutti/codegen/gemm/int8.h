// C = A B for int8 operands and an int32 result: the tiles of GEMM over several k at once.
//
// A register holds two neighbouring k of a column as 16-bit integers; one instruction multiplies them with those of a
// row and adds the two products, which fit 32 bits whatever they are. On dot units it holds four k as they are. All
// sums are exact modulo 2^32, so no order matters.
#pragma once

#include "tutti/codegen/gemm/gemm.h"

namespace tutti::codegen {

// The integers of an item of packed memory.
enum class Int8Items : uint8_t { pairs, quads };
constexpr int64_t integers_of(Int8Items items) { return items == Int8Items::quads ? 4 : 2; }
// What takes less time on a processor.
constexpr Int8Items int8_items(CpuTarget target) {
  return target >= CpuTarget::avx512vnni ? Int8Items::quads : Int8Items::pairs;
}

// c[m, n] = a[m, k] b[k, n]; a and b are i8 with any strides, c is i32. Sums wrap modulo 2^32, which up to k = 131071
// none can reach. k = 0 stores zeros. Where k is no multiple of the integers of an item both operands are copied, zeros
// behind each row and column. options.producer is not supported. UsageError for negative sizes, other dtypes, a
// producer, or neither c nor a consumer.
void int8_gemm(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b, const GemmResult& c,
               const GemmOptions& options = {});

// The same with items that are given; the integers are the same.
void int8_gemm_over(Int8Items items, int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
                    const GemmResult& c, const GemmOptions& options = {});

}  // namespace tutti::codegen
