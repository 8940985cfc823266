// Properties of a call that follow from its recipe and are needed before a kernel is made.
#pragma once

#include "tutti/ops/engine/op_def.h"

namespace tutti::graph {

class RecipeFacts {
 public:
  // call.op has a recipe; outputs: their dtypes.
  RecipeFacts(const OpCall& call, std::span<const DType> outputs);

  const KernelBody& body() const { return body_; }
  const std::vector<Expr>& results() const { return results_; }  // per output

  // Whether integers are divided by something that may be zero, whatever the call's attrs are.
  bool divides() const;
  // Whether its elements depend on where they stand in the output.
  bool counts() const;
  // Whether output 0 is the sum of all `count` operands in their order, or in the other one for two, and nothing else.
  bool adds(size_t count) const;

 private:
  bool is_never_zero(int32_t divisor) const;
  int32_t without_conversions(int32_t node) const;

  KernelBody body_;
  std::vector<Expr> results_;
  codegen::ParamValue params_[16] = {};
};

}  // namespace tutti::graph
