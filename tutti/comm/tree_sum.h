// The sum over ranks: one tree, the same on every transport.
//
// n addends in rank order split into the first ceil(n/2) and the last floor(n/2) until one is left, and the two
// halves of every split are added in f32. A process that holds all n addends and n processes that hold one each
// therefore produce the same bits.
#pragma once

#include <cstdint>
#include <span>

namespace tutti::comm {

// out[i] = tree sum over r of addends[r][i], for i in [0, count). `out` may be the memory of any addend.
// Needs at least one addend; more than 64 is a UsageError.
void tree_sum_f32(std::span<const float* const> addends, int64_t count, float* out);

}  // namespace tutti::comm
