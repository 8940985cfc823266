// The version of Tutti's numerical results.
#pragma once

namespace tutti {

// Incremented with every change that alters a bit of a loss, a gradient or a weight on some layout; CHANGELOG.md
// describes each.
//   1  the first numerics; checkpoints written with it do not record a version
//   2  cross entropy from (m, r), gelu through erfcx, sums of broadcast narrow operands rounded once
//   3  losses of probabilities and of smoothed labels, gradients of log_softmax, binary cross entropy: nothing cancels;
//   losses of
//      labels, and so the runs of the trainer, have the bits of version 2
//   4  masks of dropout by module, step and virtual shard, also in compiled functions; gradients of narrow leaves
//   summed in f32;
//      runs of the trainer without dropout have the bits of version 3
//   5  the gradient of what the projections of Qwen3 read (query, key and value; gate and up) is one contraction:
//   losses of the trainer
//      change in their last bits
//   6  products of two bf16 operands are the chains that dot units compute; runs of the trainer in f32 have the bits of
//   version 5
//   7  adagrad_rows_step_ sums the squares of a row in leaves of 16 elements; runs of the trainer have the bits of
//   version 6
inline constexpr int kNumericsVersion = 7;

}  // namespace tutti
