#include "tutti/comm/tree_sum.h"

#include <algorithm>
#include <array>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr int64_t kMaxAddends = 64;
constexpr int kMaxDepth = 6;  // log2 of kMaxAddends
// One block of every level stays in the first-level cache: 7 x 2 KiB.
constexpr int64_t kBlock = 512;

using Scratch = std::array<std::array<float, kBlock>, kMaxDepth>;

// The sum of `addends` over [offset, offset + count), either an addend itself or `into`.
// A right half may use the scratch of deeper levels freely: the left half is already in a row of its own level.
const float* sum_block(std::span<const float* const> addends, int64_t offset, int64_t count, int depth, float* into,
                       Scratch& scratch) {
  if (addends.size() == 1) return addends[0] + offset;
  const size_t left_size = (addends.size() + 1) / 2;
  const float* left = sum_block(addends.first(left_size), offset, count, depth + 1, into, scratch);
  const float* right = sum_block(addends.subspan(left_size), offset, count, depth + 1, scratch[depth].data(), scratch);
  for (int64_t i = 0; i < count; ++i) into[i] = left[i] + right[i];
  return into;
}

}  // namespace

void tree_sum_f32(std::span<const float* const> addends, int64_t count, float* out) {
  TUTTI_CHECK(!addends.empty() && addends.size() <= kMaxAddends, "tree_sum_f32: {} addends; expected 1 to {}",
              addends.size(), kMaxAddends);
  Scratch scratch;
  std::array<float, kBlock> sum;
  for (int64_t offset = 0; offset < count; offset += kBlock) {
    const int64_t block = std::min(kBlock, count - offset);
    const float* result = sum_block(addends, offset, block, 0, sum.data(), scratch);
    std::copy_n(result, block, out + offset);
  }
}

}  // namespace tutti::comm
