// The operands of products of codes, for one weight or for several that share x.
//
// Inputs: x [m, k], its scale, its zero point, then for each weight: codes [n, k], scale, bias, scale and zero point of
// the result. What is absent is a tensor of no elements, so that every call of an op has the same inputs.
#pragma once

#include <vector>

#include "tutti/codegen/codes/scaled_product.h"
#include "tutti/ops/engine/op_def.h"

namespace tutti::scaled {

inline constexpr int kSharedInputs = 3, kInputsOfWeight = 5;

struct ScaledLinearAttrs {
  DType x_codes;
  DType dtype;  // of the results
  static constexpr auto fields() {
    return field_list(field::rule<&ScaledLinearAttrs::x_codes>("x_codes"),
                      field::output_dtype<&ScaledLinearAttrs::dtype>("dtype"));
  }
};

// What the kernels need of a call, which holds dense copies where operands are not dense.
class ScaledCall {
 public:
  ScaledCall(const OpCall& call, std::span<const Tensor> outputs);
  codegen::ScaledProduct product;

 private:
  Tensor dense(const Tensor& t);
  std::vector<Tensor> held_;
  std::vector<codegen::ScaledWeights> weights_;
};

// UsageError for scales that are not positive and finite, and for zero points beyond the codes.
void check_scales(const OpCall& call);
// The definition in plain loops.
void reference(const OpCall& call, std::span<const Tensor> outputs);

}  // namespace tutti::scaled
