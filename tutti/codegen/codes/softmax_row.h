// The parts of a softmax over keys in f32, with the bits of any instruction set. Private to attention over codes.
#pragma once

#include <cstdint>

namespace tutti::codegen::codes {

// Keys of a leaf of sums over keys.
inline constexpr int64_t kKeyBlock = 64;

// The largest of `count` scores, a multiple of kKeyBlock; NaN where one is.
float largest_score(const float* scores, int64_t count);

// Scores become exp(score - m), and 0 where they are -infinity. Returns their sum: eight lanes in each block of keys,
// blocks in an aligned tree anchored at key 0 (numerics contract, N10).
float exponentials(float* scores, int64_t count, float m);

}  // namespace tutti::codegen::codes
