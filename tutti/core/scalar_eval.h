// Constant folding in recipes: evaluates one scalar operation on host values, following core/number.h.
//
// Only operations whose result is exact or correctly rounded by IEEE 754 are folded. Transcendental functions stay in
// the kernel, so that a folded and an unfolded kernel have the same bits.
#pragma once

#include <optional>
#include <vector>

#include "tutti/core/expr.h"

namespace tutti {

// A value of an integer, boolean (in `i`) or float (in `f`, already rounded to the dtype) node.
struct ScalarValue {
  DType dtype;
  double f = 0.0;
  int64_t i = 0;
};

// The result, or nullopt when the operation cannot be folded. Throws IntegerDivideByZero.
std::optional<ScalarValue> evaluate_scalar(ScalarOp op, DType result, const ScalarValue* operands, int count);

// Turns `node` into a constant when all its operands in `nodes` are constants and the operation folds. A division by a
// constant integer zero is left for the kernel, which reports it when it runs.
void fold_constants(ExprNode& node, const std::vector<ExprNode>& nodes);

}  // namespace tutti
