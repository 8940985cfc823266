// What library_kernels() lists is all that products ask for.
#include "tutti/codegen/library_kernels.h"

#include <gtest/gtest.h>

#include <set>

#include "tutti/codegen/gemm/code_target.h"
#include "tutti/codegen/gemm/gemm.h"
#include "tutti/codegen/gemm/int8.h"
#include "tutti/codegen/kernel_cache.h"
#include "tutti/codegen/kernel_requests.h"
#include "tutti/runtime/thread_pool.h"
#include "tutti/tensor/tensor.h"

namespace tutti::codegen {
namespace {

DType sum_of(DType dtype) { return dtype == DType::i8 ? DType::i32 : dtype == DType::f64 ? DType::f64 : DType::f32; }

// All listed kernels are compiled; a product that asks for another one is then an InternalError. ctest runs each test
// in a process of its own, where nothing else has asked before.
TEST(LibraryKernels, ProductsOfAllSizesAskForNoOthers) {
  const DType dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16, DType::i8};
  for (const LibraryKernelSpec& k : library_kernels(dtypes, cpu_target())) {
    if (const auto* tile = std::get_if<GemmKernelSpec>(&k.spec)) gemm_tile_for(*tile, cpu_target());
  }
  ThreadPool pool(1);
  const NoNewKernels none;
  for (const auto& [a_dtype, b_dtype] : {std::pair{DType::f32, DType::f32},
                                         {DType::bf16, DType::bf16},
                                         {DType::f32, DType::bf16},
                                         {DType::f16, DType::f16},
                                         {DType::f32, DType::f16},
                                         {DType::f64, DType::f64},
                                         {DType::i8, DType::i8}}) {
    for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 31, 32, 33, 50}) {
      for (const int64_t n : {1, 3, 7, 8, 9, 16, 17, 24, 40, 63, 64, 65, 130}) {
        for (const int64_t k : {1, 5, 64, 700}) {
          for (const bool turned : {false, true}) {
            const Tensor a = Tensor::empty({m, k}, a_dtype), b = Tensor::empty({k, n}, b_dtype),
                         c = Tensor::empty({m, n}, sum_of(a_dtype));
            const GemmOperand left{a.raw_data(), a_dtype, k, 1},
                right = turned ? GemmOperand{b.raw_data(), b_dtype, 1, k} : GemmOperand{b.raw_data(), b_dtype, n, 1};
            const GemmResult result{c.raw_data(), c.dtype(), n};
            if (a_dtype == DType::i8) int8_gemm(m, n, k, left, right, result, {.pool = &pool});
            else gemm(m, n, k, left, right, result, ContractionTree::halving(k), {.pool = &pool});
          }
        }
      }
    }
  }
}

TEST(LibraryKernels, AreListedOnceAndForTargetsThatTheLevelHas) {
  std::vector<DType> dtypes;
  for (int d = 0; d < kNumDTypes; ++d) dtypes.push_back(static_cast<DType>(d));
  for (const CpuTarget level : {CpuTarget::avx2, CpuTarget::avx512, CpuTarget::avx512vnni, CpuTarget::avx512bf16}) {
    std::set<std::string> keys;
    for (const LibraryKernelSpec& k : library_kernels(dtypes, level)) {
      EXPECT_TRUE(keys.insert(k.key()).second) << k.name() << " for " << name_of(level);
      EXPECT_TRUE(is_code_of(level, k.target)) << k.name() << " for " << name_of(level);  // packages map no other
    }
  }
  const DType f32[] = {DType::f32};
  const LibraryKernelSpec first = library_kernels(f32, CpuTarget::avx512)[0];  // whatever this processor has
  EXPECT_FALSE(library_code(first).bytes.empty()) << first.name();
  const DType integers[] = {DType::i64, DType::i32};
  EXPECT_TRUE(library_kernels(integers, CpuTarget::avx2).empty());
}

}  // namespace
}  // namespace tutti::codegen
