// Fused linear projection and cross entropy: the loss of linear(input, weight) + bias without materializing the logits.
#pragma once

#include <optional>

#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/loss_reduction.h"

namespace tutti {

inline constexpr int64_t kDefaultLossBytes = int64_t{256} << 20;

// When the gradients are computed.
enum class LossGradients : uint8_t {
  recomputed,  // in the backward, which recomputes the logits
  // In the forward, for a cotangent of 1 on a mean or sum, while the logits of a chunk of rows are in memory. The
  // backward uses the saved gradients when its cotangent is exactly 1 and recomputes them otherwise. Requires an
  // integer target without label_smoothing and z_loss; max_bytes must hold the logits of 128 rows and pending sums over
  // rows.
  in_forward,
};

struct LinearCrossEntropyOptions {
  Tensor bias = {};          // [V]
  Tensor class_weight = {};  // [V], without gradient: a factor for the loss of each class
  Tensor row_weight = {};    // [...], without the class dim: a factor for the loss of each row
  LossReduction reduction = LossReduction::mean;
  int64_t ignore_index = kIgnoreLabel;  // rows with this label have loss 0 and gradient 0
  double label_smoothing = 0;           // in [0, 1]: this part of each target is spread evenly over all classes
  double z_loss = 0;                    // adds z_loss * logsumexp^2 to the loss of each row
  double softcap = 0;                   // logits become softcap * tanh(logits / softcap); 0: off
  // The dtype that logits and their gradients are rounded to: f32, or the dtype of the operands, as after linear(). f64
  // operands always use f64.
  DType logits_dtype = DType::f32;
  // Bound on the temporary memory of a pass, in bytes, without vectors of one number per row or class. A lower bound is
  // slower; the least chunk is 128 x 512 logits. UsageError, before anything is computed, when the bound is too low.
  int64_t max_bytes = kDefaultLossBytes;
  int64_t chunk_rows = 0, chunk_classes = 0;  // bounds on the size of a chunk; 0: chosen for max_bytes and speed
  LossGradients gradients = LossGradients::recomputed;  // does not change any bit
};

// The cross entropy of the logits input weight^T + bias against target, computed chunk by chunk over rows and classes;
// the backward recomputes the logits unless `gradients` says otherwise. Chunks are nodes of the trees of cross_entropy
// and of the products (numerics contract, N3, N3t, N10), so loss and gradients have the bits of
// cross_entropy(matmul(input, weight^T, {.out_dtype = logits_dtype}) + bias, target) and of its gradients, whatever the
// chunks, max_bytes and the number of threads. Gradients of weight and bias are f32 (N4).
//   loss of a row: (1 - s) w_t (lse - x_t) + s / V sum_c w_c (lse - x_c) + z lse^2, times its row weight
//   mean: the sum divided by the sum of w_t times row weight over the rows that are not ignored; NaN when there are
//   none
// (s: label_smoothing, w: class_weight, z: z_loss, x: logits, lse: their logsumexp, t: the label.)
// A float target [..., V] holds probabilities p, which get no gradient; the loss of a row is sum_c p_c (lse - x_c) + z
// lse^2, and the mean divides by the sum of the row weights, or by the number of rows. Shapes: input [..., F], weight
// [V, F], target integers [...] or floats [..., V] -> [], or [...] with LossReduction::none. Dtype of the result: f32
// (f64 for f64). Not twice differentiable. UsageError for labels outside [0, V) that are not ignore_index,
// label_smoothing or class_weight with probabilities, a max_bytes that is too small, and gradients in the forward for a
// loss that does not meet the conditions given there. Source: docs/loss.md; Wijmans et al. 2024 (cut cross entropy).
Tensor linear_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& target,
                            const LinearCrossEntropyOptions& options = {});

}  // namespace tutti
