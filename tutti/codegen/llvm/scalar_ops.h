// One Expr operation on register values: any number of lanes, same bits for every number.
//
// Nothing here traps: divisors of inactive lanes and zero divisors are replaced before the division.
#pragma once

#include <llvm/ADT/ArrayRef.h>

#include "tutti/codegen/llvm/types.h"
#include "tutti/core/expr.h"

namespace tutti::codegen {

struct OpContext {
  llvm::IRBuilderBase& b;
  llvm::Value* mask = nullptr;  // lanes that count; null: all
  llvm::Value* error =
      nullptr;  // slot of an i32, gets kDividedByZero when a lane that counts divides an integer by zero
};

// The value of `node`, whose operands are `v` of compute dtype `from` (that of operand 0).
// UsageError for an operation the dtype does not have.
llvm::Value* emit_op(const OpContext& c, const ExprNode& node, DType from, llvm::ArrayRef<llvm::Value*> v);

// The parts, by kind of operand.
llvm::Value* emit_float_op(const OpContext& c, ScalarOp op, llvm::ArrayRef<llvm::Value*> v);
llvm::Value* emit_integer_op(const OpContext& c, ScalarOp op, DType dtype, llvm::ArrayRef<llvm::Value*> v);
llvm::Value* emit_boolean_op(const OpContext& c, ScalarOp op, llvm::ArrayRef<llvm::Value*> v);

// C fmod of f32 or f64 lanes, exact.
llvm::Value* emit_fmod(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);

// Philox4x32-10 (core/philox.h): the word of element `index`, with 64-bit key and upper counter half; all i64.
llvm::Value* emit_philox(llvm::IRBuilderBase& b, llvm::Value* index, llvm::Value* key, llvm::Value* counter_high);

// The extreme of two floats; a NaN operand gives NaN. Of two zeros any one, for sums that are anchored at a maximum.
llvm::Value* emit_float_extreme(llvm::IRBuilderBase& b, bool maximum, llvm::Value* x, llvm::Value* y);
// maximum / minimum of Expr on floats, and the combining step of reductions: as above, and -0 is smaller than 0, so
// that the result of many does not depend on their order.
llvm::Value* emit_ordered_extreme(llvm::IRBuilderBase& b, bool maximum, llvm::Value* x, llvm::Value* y);

[[noreturn]] void no_such_op(ScalarOp op, DType dtype);

}  // namespace tutti::codegen
