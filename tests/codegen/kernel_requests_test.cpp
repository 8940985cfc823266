// What a thread asks of the kernel cache while it may ask for nothing new.
#include "tutti/codegen/kernel_requests.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>

#include "tests/codegen/support/harness.h"
#include "tutti/codegen/kernel_cache.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

// x + number, a kernel of its own for every number.
KernelSpec plus(double number) {
  testing::Recipe recipe;
  recipe.output(recipe.input(DType::f32) + number, DType::f32);
  return recipe.finish("plus");
}

// How many of the pool's threads are refused the kernel; each runs one part of a loop.
int refusals(ThreadPool& pool, const KernelSpec& spec) {
  std::atomic<int> refused = 0;
  std::barrier all(pool.threads());
  pool.parallel_for(pool.threads(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      all.arrive_and_wait();
      try {
        compile_for(spec, CpuTarget::avx2);
      } catch (const InternalError&) {
        ++refused;
      }
    }
  });
  return refused;
}

TEST(NoNewKernels, HoldsForTheWorkersOfALoop) {
  ThreadPool pool(3);
  {
    const NoNewKernels none;
    EXPECT_EQ(refusals(pool, plus(0.125)), 3);
  }
  EXPECT_EQ(refusals(pool, plus(0.125)), 0) << "the workers keep the flag of an earlier loop";
  const NoNewKernels none;
  EXPECT_EQ(refusals(pool, plus(0.125)), 0) << "a kernel in memory is none to be made";
}

TEST(NoNewKernels, EndsWithItsScope) {
  const NoNewKernels outer;
  {
    const NoNewKernels inner;
  }
  EXPECT_THROW(compile_for(plus(0.375), CpuTarget::avx2), InternalError);
}

}  // namespace
}  // namespace tutti::codegen
