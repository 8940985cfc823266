#include "tutti/runtime/fp_environment.h"

#include <gtest/gtest.h>
#include <xmmintrin.h>

namespace tutti {
namespace {

constexpr unsigned kFlushing = 0x1f80 | 0x8040;  // flush to zero, denormals are zero

TEST(FpEnvironment, IsSeenAndRestored) {
  set_fp_environment();
  EXPECT_TRUE(has_fp_environment());
  _mm_setcsr(kFlushing);
  EXPECT_FALSE(has_fp_environment());
  set_fp_environment();
  EXPECT_TRUE(has_fp_environment());
}

TEST(FpEnvironmentScope, GivesBackWhatItFound) {
  _mm_setcsr(kFlushing);
  {
    FpEnvironmentScope scope;
    EXPECT_TRUE(has_fp_environment());
  }
  EXPECT_FALSE(has_fp_environment());
  set_fp_environment();
}

}  // namespace
}  // namespace tutti
