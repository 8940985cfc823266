// Functions of lanes that kernels of codes are compiled with, against the ops and conversions of that name.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "tutti/codegen/codes/code_type.h"
#include "tutti/codegen/codes/exp_lanes.h"
#include "tutti/codegen/codes/softmax_row.h"
#include "tutti/ops/unary.h"

namespace tutti {
namespace {

// Bit patterns over the whole range, 2^32 / kStep of them.
constexpr int64_t kStep = 1021, kCount = (int64_t{1} << 32) / kStep / 8 * 8;

Tensor patterns() {
  const Tensor x = Tensor::empty({kCount});
  for (int64_t i = 0; i < kCount; ++i) x.data<float>()[i] = std::bit_cast<float>(static_cast<uint32_t>(i * kStep));
  return x;
}

TEST(CodeLanes, ExponentialsHaveTheBitsOfTheOp) {
  const Tensor x = patterns(), expected = exp(x);
  for (int64_t i = 0; i < kCount; i += 8) {
    float found[8];
    _mm256_storeu_ps(found, codegen::codes::exp_lanes(_mm256_loadu_ps(x.data<float>() + i)));
    for (int64_t j = 0; j < 8; ++j) {
      const float right = expected.data<float>()[i + j];
      ASSERT_TRUE(std::isnan(right) ? std::isnan(found[j])
                                    : std::bit_cast<uint32_t>(found[j]) == std::bit_cast<uint32_t>(right))
          << x.data<float>()[i + j] << ": " << found[j] << " instead of " << right;
    }
  }
}

// Registers of 16 lanes, where there are any, have the bits of those of eight.
TEST(CodeLanes, RowsOfExponentialsHaveTheBitsOfTheOp) {
  const Tensor x = patterns(), expected = exp(x);
  for (int64_t i = 0; i + codegen::codes::kKeyBlock <= kCount; i += codegen::codes::kKeyBlock) {
    float found[codegen::codes::kKeyBlock], lanes[8] = {};
    std::copy_n(x.data<float>() + i, codegen::codes::kKeyBlock, found);
    const float sum = codegen::codes::exponentials(found, codegen::codes::kKeyBlock, 0);
    for (int64_t j = 0; j < codegen::codes::kKeyBlock; ++j) {
      const float right = expected.data<float>()[i + j];
      ASSERT_TRUE(std::isnan(right) ? std::isnan(found[j])
                                    : std::bit_cast<uint32_t>(found[j]) == std::bit_cast<uint32_t>(right))
          << x.data<float>()[i + j] << ": " << found[j] << " instead of " << right;
      lanes[j % 8] += right;
    }
    for (int half = 4; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
    ASSERT_TRUE(std::isnan(sum) ? std::isnan(lanes[0]) : sum == lanes[0]) << i;
  }
}

TEST(CodeLanes, NumbersAreRoundedToE4m3AsConversionsDo) {
  const Tensor x = patterns();
  for (int64_t i = 0; i < kCount; i += 8) {
    float found[8];
    _mm256_storeu_ps(found, codegen::codes::e4m3_rounded(_mm256_loadu_ps(x.data<float>() + i)));
    for (int64_t j = 0; j < 8; ++j) {
      const float right = to_float(codegen::e4m3_code(x.data<float>()[i + j]));
      ASSERT_TRUE(std::isnan(right) ? std::isnan(found[j])
                                    : std::bit_cast<uint32_t>(found[j]) == std::bit_cast<uint32_t>(right))
          << x.data<float>()[i + j] << ": " << found[j] << " instead of " << right;
    }
  }
}

}  // namespace
}  // namespace tutti
