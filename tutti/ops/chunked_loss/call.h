// The calls of linear cross entropy: what their attrs say and which input is which.
#pragma once

#include "tutti/ops/engine/op_def.h"

namespace tutti::chunked_loss {

struct LossAttrs {
  int64_t ignore_index;
  int64_t first_class = 0;  // of a shard of the classes
  int64_t max_bytes;
  int64_t chunk_rows = 0;  // at most; 0: as max_bytes allows
  int64_t chunk_classes = 0;
  double softcap = 0;         // 0: none
  DType logits = DType::f32;  // to which logits and their gradients are rounded; f64 operands: f64
  bool partial = false;       // the gradient of x is a sum over some of the classes: it stays f32 (N4)
  uint8_t needs = 0;          // gradients that will be, or are, asked for: bits of Need
  static constexpr auto fields() {
    return field_list(
        field::number<&LossAttrs::ignore_index>("ignore_index"), field::number<&LossAttrs::first_class>("first_class"),
        field::number<&LossAttrs::max_bytes>("max_bytes"), field::number<&LossAttrs::chunk_rows>("chunk_rows"),
        field::number<&LossAttrs::chunk_classes>("chunk_classes"), field::number<&LossAttrs::softcap>("softcap"),
        field::rule<&LossAttrs::logits>("logits"), field::rule<&LossAttrs::partial>("partial"),
        field::rule<&LossAttrs::needs>("needs"));
  }
};
enum Need : uint8_t { kNeedX = 1, kNeedWeight = 2, kNeedBias = 4 };
inline const LossAttrs& attrs_of(const OpCall& call) { return call.attrs.as<LossAttrs>(); }

// Inputs of all of them: x [N, F], weight [V, F], labels [N, 1], bias [V] or [0], mix [1 or N, V] or [0, 0]: the
// weights of the classes in the mixed loss, sum_c mix_c (logsumexp - x_c).
enum Input : size_t { kX, kWeight, kLabels, kBias, kMix, kForwardInputs };
// And of the gradient: maximum and rest of each row [N, 2]; the cotangent of the loss [N, 1]; that of the logsumexp,
// [0, 1] when there is none; the cotangent of the mixed loss, [0, 1] without mix.
enum BackwardInput : size_t { kStatistics = kForwardInputs, kGradLoss, kGradMass, kGradMix, kBackwardInputs };

// Outputs of the loss: loss and logsumexp [N, 1], the mixed loss [N, 1] or, without mix, [N, 0], maximum and rest of
// each row [N, 2].
enum LossOutput : size_t { kRowLoss, kRowLse, kRowMixed, kRowStatistics, kLossOutputs };

inline bool has_bias(const OpCall& call) { return call[kBias].numel() > 0; }
inline bool has_mix(const OpCall& call) { return call[kMix].extents()[1] > 0; }
inline int64_t rows_of(const OpCall& call) { return call[kX].extents()[0]; }
inline int64_t features_of(const OpCall& call) { return call[kX].extents()[1]; }
inline int64_t classes_of(const OpCall& call) { return call[kWeight].extents()[0]; }
// f32, or f64 when an operand is f64.
inline DType computes_in(const OpCall& call) { return compute_dtype(promote(call[kX].dtype(), call[kWeight].dtype())); }
inline DType logits_of(const OpCall& call) {
  return computes_in(call) == DType::f64 ? DType::f64 : attrs_of(call).logits;
}
inline bool needs(const OpCall& call, Need what) { return (attrs_of(call).needs & what) != 0; }

}  // namespace tutti::chunked_loss
