// The version of the numbers that Tutti computes.
#pragma once

namespace tutti {

// Rises with every change that moves a bit of a loss, a gradient or a weight on some layout; CHANGELOG.md says what moved.
//   1  until small losses were mended; checkpoints of that time do not say so
//   2  cross entropy from (m, r), gelu through erfcx, sums of broadcast narrow operands rounded once
inline constexpr int kNumericsVersion = 2;

}  // namespace tutti
