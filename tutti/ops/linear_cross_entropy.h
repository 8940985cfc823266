// Projection and cross entropy in one: the loss of linear(input, weight) + bias without the matrix of logits.
#pragma once

#include <optional>

#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/loss_reduction.h"

namespace tutti {

inline constexpr int64_t kDefaultLossBytes = int64_t{256} << 20;

// Where the gradients are computed.
enum class LossGradients : uint8_t {
  recomputed,  // in the backward, which computes the logits again
  // In the forward, for the cotangent 1 of a mean or sum, while all classes of a chunk of rows are there. They are saved for the
  // backward, which takes them when its cotangent is 1, bit for bit, and computes them from the start when it is not. For labels
  // without label_smoothing and z_loss; the logits of 128 rows must fit in max_bytes, and sums over rows that wait.
  in_forward,
};

struct LinearCrossEntropyOptions {
  Tensor bias = {};          // [V]
  Tensor class_weight = {};  // [V], a constant: factor of the loss of each class
  Tensor row_weight = {};    // of the sizes of an index target: factor of the loss of each row
  LossReduction reduction = LossReduction::mean;
  int64_t ignore_index = kIgnoreLabel;  // rows with this label have loss 0 and gradient 0
  double label_smoothing = 0;           // in [0, 1]: that part of each target is spread evenly over all classes
  double z_loss = 0;                    // adds z_loss * logsumexp^2 to the loss of each row
  double softcap = 0;                   // logits become softcap * tanh(logits / softcap); 0: they stay
  // To which logits and their gradients are rounded: f32, or the dtype of the operands (then as after linear()). f64: f64.
  DType logits_dtype = DType::f32;
  // Bound on the memory of a pass besides operands, results and vectors of one number a row or class. Less costs time, down to
  // chunks of 128 x 512 logits; what cannot be held is an error before anything is computed.
  int64_t max_bytes = kDefaultLossBytes;
  int64_t chunk_rows = 0, chunk_classes = 0;  // bounds of a chunk; 0: as max_bytes and speed say
  LossGradients gradients = LossGradients::recomputed;  // the same bits either way
};

// Cross entropy of the logits input weight^T + bias against target, chunk by chunk over rows and classes; the backward computes
// the logits again, unless `gradients` says otherwise. Chunks are nodes of the trees of cross_entropy and of the products (numerics contract, N3, N3t, N10): loss
// and gradients have the bits of cross_entropy(matmul(input, weight^T, {.out_dtype = logits_dtype}) + bias, target) and of its
// gradients, for any chunks, max_bytes and threads. Gradients of weight and bias are f32 (N4).
//   loss of a row: (1 - s) w_t (lse - x_t) + s / V sum_c w_c (lse - x_c) + z lse^2, times its row weight
//   mean: the sum divided by the sum of w_t times row weight over the rows that are kept; NaN when there is none
// With a float target [..., V], probabilities without gradient: sum_c p_c (lse - x_c) + z lse^2; mean divides by the sum
// of row weights, or the number of rows.
// Shapes: input [..., F], weight [V, F], target integers [...] or floats [..., V] -> [] or, with none, [...]. Dtype of the
// result: f32 (f64 for f64). Gradients of gradients: not defined.
// Error: labels outside [0, V) that are not ignore_index; label_smoothing or class_weight with probabilities; max_bytes too small;
// gradients in the forward of a loss that is not as said there.
// Source: docs/loss.md; Wijmans et al. 2024 (cut cross entropy).
Tensor linear_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& target, const LinearCrossEntropyOptions& options = {});

}  // namespace tutti
