// The attrs of the ops of attention, and helper ops that run next to their kernels.
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
  int64_t window = -1;   // a query sees so many keys before its last one; -1: all
  double score_cap = 0;  // 0: none
  bool paged = false;    // forward: keys and values are pages, input 5 is their table
  static constexpr auto fields() {
    return field_list(field::number<&SdpaAttrs::scale>("scale"), field::rule<&SdpaAttrs::causal>("causal"),
                      field::rule<&SdpaAttrs::partial>("partial"), field::number<&SdpaAttrs::window>("window"),
                      field::number<&SdpaAttrs::score_cap>("score_cap"), field::rule<&SdpaAttrs::paged>("paged"));
  }
};

// g, o -> sum(g o)
extern const OpDef kDelta;
extern const OpDef kCopy;
extern const OpDef kAdd;

void run_step(const OpDef& op, const Attrs& attrs, std::initializer_list<Tensor> inputs,
              std::initializer_list<Tensor> outputs);

}  // namespace tutti::attention
