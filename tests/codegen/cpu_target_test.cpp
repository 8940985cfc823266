// TUTTI_CPU: what it may ask for, and what it says when it may not.
#include "tutti/codegen/cpu_target.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace tutti::codegen {
namespace {

constexpr CpuTarget kAll[] = {CpuTarget::avx2, CpuTarget::avx512, CpuTarget::avx512vnni, CpuTarget::avx512bf16};

TEST(CpuTarget, IsTheWishedOneUpToTheBest) {
  for (const CpuTarget best : kAll) {
    EXPECT_EQ(wished_target("", best), best);
    for (const CpuTarget wish : kAll) {
      if (wish > best) continue;
      EXPECT_EQ(wished_target(name_of(wish), best), wish);
    }
  }
}

TEST(CpuTarget, SaysWhatTheProcessorLacks) {
  EXPECT_EQ(message_of([] { wished_target("avx512", CpuTarget::avx2); }),
            "TUTTI_CPU=avx512: this processor has no AVX-512 (F, BW, DQ, VL, CD); use TUTTI_CPU=avx2 or unset it");
  EXPECT_EQ(message_of([] { wished_target("avx512bf16", CpuTarget::avx512); }),
            "TUTTI_CPU=avx512bf16: this processor has no AVX-512 VNNI; use TUTTI_CPU=avx512 or unset it");
  EXPECT_EQ(message_of([] { wished_target("avx512bf16", CpuTarget::avx512vnni); }),
            "TUTTI_CPU=avx512bf16: this processor has no AVX-512 BF16; use TUTTI_CPU=avx512vnni or unset it");
  EXPECT_EQ(message_of([] { wished_target("AVX2", CpuTarget::avx512); }),
            "TUTTI_CPU=AVX2: expected avx2, avx512, avx512vnni or avx512bf16");
}

}  // namespace
}  // namespace tutti::codegen
