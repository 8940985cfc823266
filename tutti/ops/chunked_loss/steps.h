// The recipes that run on a chunk of logits.
#pragma once

#include <span>

#include "tutti/ops/chunked_loss/call.h"
#include "tutti/ops/engine/attrs.h"

namespace tutti::chunked_loss {

// The part of the call that a step depends on; `first_class` is that of the chunk.
struct StepAttrs {
  int64_t first_class = 0, ignore_index = 0;
  double softcap = 0;
  DType logits = DType::f32;
  bool bias = false, mix = false, mass = false;
  static constexpr auto fields() {
    return field_list(field::number<&StepAttrs::first_class>("first_class"),
                      field::number<&StepAttrs::ignore_index>("ignore_index"),
                      field::number<&StepAttrs::softcap>("softcap"), field::rule<&StepAttrs::logits>("logits"),
                      field::rule<&StepAttrs::bias>("bias"), field::rule<&StepAttrs::mix>("mix"),
                      field::rule<&StepAttrs::mass>("mass"));
  }
};
// For the chunk that begins at class `begin` of this call's.
StepAttrs step_attrs(const OpCall& call, int64_t begin);

// The columns of statistics [B, 1]; the last two with mix only.
enum StatisticsColumn : int {
  kColumnMaximum,
  kColumnRest,
  kColumnTarget,
  kPlainColumns,
  kColumnMixed = kPlainColumns,
  kColumnWeight,
  kMixedColumns
};
inline int statistics_columns(const OpCall& call) { return has_mix(call) ? kMixedColumns : kPlainColumns; }

// z [B, C], labels [B, 1], then bias [1, C] and mix [1 or B, C] when there are -> maximum, rest, target[, sum of mix
// (maximum - x), sum of mix] [B, 1]. With mix, C is at most a leaf of the tree over classes: so the bits do not depend
// on chunks, although every sum has the maximum of its own part as origin, from which nothing cancels.
extern const OpDef kChunkStatistics;
// The columns of two neighbouring parts -> those of both
extern const OpDef kJoinStatistics;
// The columns, labels -> loss, logsumexp[, mixed loss] [B, 1]
extern const OpDef kFinishStatistics;
// z, labels, maximum, rest, grad of the loss, then as they are there: bias; mix, the grad of the mixed loss and the
// three columns of kSplitMix; what else multiplies the probabilities -> gradient of z before bias
extern const OpDef kChunkGradient;
// mix [M, V] -> its sum over classes as a SplitSum, [M, 1] each
extern const OpDef kSplitMix;
// d [B, C] -> its sum over rows [C]
extern const OpDef kSumRows;
// a, b -> a + b; a -> a in another dtype
extern const OpDef kAddParts, kConvert;

void run_step(const OpDef& op, const StepAttrs& attrs, std::span<const Tensor> inputs, std::span<const Tensor> outputs);
inline void run_step(const OpDef& op, std::initializer_list<Tensor> inputs, const Tensor& output) {
  run_step(op, {}, {inputs.begin(), inputs.size()}, {&output, 1});
}

}  // namespace tutti::chunked_loss
