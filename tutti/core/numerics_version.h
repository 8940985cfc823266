// The version of Tutti's numerical results.
#pragma once

namespace tutti {

// Incremented with every change that alters a bit of a loss, a gradient or a weight on some layout; CHANGELOG.md describes each.
//   1  the first numerics; checkpoints written with it do not record a version
//   2  cross entropy from (m, r), gelu through erfcx, sums of broadcast narrow operands rounded once
inline constexpr int kNumericsVersion = 2;

}  // namespace tutti
