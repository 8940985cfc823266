#include "tutti/codegen/llvm/scalar_ops.h"

namespace tutti::codegen {

using llvm::Value;

Value* emit_transcendental(llvm::IRBuilderBase&, ScalarOp op, llvm::ArrayRef<Value*> v) {
  no_such_op(op, v[0]->getType()->getScalarType()->isDoubleTy() ? DType::f64 : DType::f32);
}

}  // namespace tutti::codegen
