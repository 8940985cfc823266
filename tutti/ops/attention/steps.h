// Steps of attention: recipes that run on scratch tensors between matrix products. Rows are (query position, head of the
// group), head fastest. `first` and `last` (i64, per row) bound the visible keys.
#pragma once

#include <initializer_list>
#include <limits>

#include "tutti/ops/engine/op_def.h"

namespace tutti::attention {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct SdpaAttrs {
  double scale;
  bool causal;
  bool partial = false;  // gradients stay unrounded
};

// scores, first, last -> p = exp(x - m), m, l of one key block; the scale is that of SdpaAttrs.
extern const OpDef kBlock;
// (xa, xb, ma, mb) -> xa exp(ma - m) + xb exp(mb - m): combines o, and l likewise; an absent side is the identity.
extern const OpDef kCombine;
extern const OpDef kMaximum;
// o, l -> o / l; zeros for a query that saw nothing.
extern const OpDef kFinish;
// m, l -> m + log l
extern const OpDef kLse;
// scores, dp, lse, delta, first, last -> p, ds
extern const OpDef kProbabilities;
// g, o -> sum(g o)
extern const OpDef kDelta;
extern const OpDef kCopy;

void run_step(const OpDef& op, const Attrs& attrs, std::initializer_list<Tensor> inputs, std::initializer_list<Tensor> outputs);

}  // namespace tutti::attention
