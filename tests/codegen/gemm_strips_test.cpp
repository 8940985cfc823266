// Products whose A has its rows as neighbours in memory, the operand of a weight's gradient: strips of it are packed
// several at a time.
#include <gtest/gtest.h>

#include "tests/codegen/support/gemm_definition.h"
#include "tutti/codegen/cpu_target.h"

namespace tutti::codegen {
namespace {

using gemm_test::Matrix;
using gemm_test::wrong_elements;

TEST(GemmStrips, RowsThatAreNeighbours) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t m : {8, 16, 24, 40, 56, 64, 71, 200})
      for (const int64_t k : {1, 2, 33, 64, 130, 263}) {
        const int64_t n = 130, gap = m % 16;
        const ContractionTree tree = ContractionTree::halving(k);
        const Matrix a(m, k, dtype, 1, true, gap), b(k, n, dtype, 2);
        for (const CpuTarget target : {cpu_target(), without_dots(cpu_target()), CpuTarget::avx2}) {
          Matrix c(m, n, DType::f32, 3);
          gemm(m, n, k, a.operand(), b.operand(), c.result(), tree, {.target = target});
          EXPECT_EQ(wrong_elements(a, b, c, tree), 0)
              << m << " rows, " << k << ' ' << name_of(dtype) << ' ' << name_of(target);
        }
      }
}

}  // namespace
}  // namespace tutti::codegen
