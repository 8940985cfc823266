#include "tutti/codegen/llvm/scalar_ops.h"

#include "tutti/codegen/llvm/convert.h"
#include "tutti/codegen/llvm/random_words.h"
#include "tutti/core/error.h"

namespace tutti::codegen {

using llvm::CmpInst;
using llvm::Value;

namespace {

CmpInst::Predicate float_predicate(ScalarOp op) {
  switch (op) {
    case ScalarOp::eq:
      return CmpInst::FCMP_OEQ;
    case ScalarOp::ne:
      return CmpInst::FCMP_UNE;  // NaN differs from everything
    case ScalarOp::lt:
      return CmpInst::FCMP_OLT;
    case ScalarOp::le:
      return CmpInst::FCMP_OLE;
    case ScalarOp::gt:
      return CmpInst::FCMP_OGT;
    default:
      return CmpInst::FCMP_OGE;
  }
}

CmpInst::Predicate integer_predicate(ScalarOp op, bool is_signed) {
  switch (op) {
    case ScalarOp::eq:
      return CmpInst::ICMP_EQ;
    case ScalarOp::ne:
      return CmpInst::ICMP_NE;
    case ScalarOp::lt:
      return is_signed ? CmpInst::ICMP_SLT : CmpInst::ICMP_ULT;
    case ScalarOp::le:
      return is_signed ? CmpInst::ICMP_SLE : CmpInst::ICMP_ULE;
    case ScalarOp::gt:
      return is_signed ? CmpInst::ICMP_SGT : CmpInst::ICMP_UGT;
    default:
      return is_signed ? CmpInst::ICMP_SGE : CmpInst::ICMP_UGE;
  }
}

bool is_comparison(ScalarOp op) { return op >= ScalarOp::eq && op <= ScalarOp::ge; }

}  // namespace

void no_such_op(ScalarOp op, DType dtype) {
  throw UsageError(
      fmt::format("kernel: {} is not defined for {}; cast the operands first", name_of(op), name_of(dtype)));
}

Value* emit_op(const OpContext& c, const ExprNode& node, DType from, llvm::ArrayRef<Value*> v) {
  switch (node.op) {
    case ScalarOp::cast:
      return emit_cast(c.b, v[0], from, node.dtype);
    case ScalarOp::bitcast:
      return emit_bitcast(c.b, v[0], from, node.dtype);
    case ScalarOp::stored: {
      const DType storage = static_cast<DType>(node.index);
      return widen_storage(c.b, round_to_storage(c.b, v[0], storage), storage);
    }
    case ScalarOp::where:
      return c.b.CreateSelect(v[0], v[1], v[2]);
    case ScalarOp::philox:
      return emit_philox(c.b, v[0], v[1], v[2]);
    default:
      break;
  }
  if (is_comparison(node.op)) {
    if (is_floating(from)) return c.b.CreateFCmp(float_predicate(node.op), v[0], v[1]);
    return c.b.CreateICmp(integer_predicate(node.op, is_signed(from)), v[0], v[1]);
  }
  if (is_floating(from)) return emit_float_op(c, node.op, v);
  if (from == DType::boolean) return emit_boolean_op(c, node.op, v);
  return emit_integer_op(c, node.op, from, v);
}

// Booleans follow the integer rules of core/scalar_eval.cpp: the result is "nonzero".
Value* emit_boolean_op(const OpContext& c, ScalarOp op, llvm::ArrayRef<Value*> v) {
  llvm::IRBuilderBase& b = c.b;
  switch (op) {
    case ScalarOp::neg:
    case ScalarOp::abs:
    case ScalarOp::sign:
      return v[0];
    case ScalarOp::signbit:
    case ScalarOp::isnan:
    case ScalarOp::isinf:
      return llvm::Constant::getNullValue(v[0]->getType());
    case ScalarOp::logical_not:
    case ScalarOp::bitwise_not:
      return b.CreateNot(v[0]);
    case ScalarOp::add:
    case ScalarOp::maximum:
    case ScalarOp::fmax:
    case ScalarOp::bit_or:
      return b.CreateOr(v[0], v[1]);
    case ScalarOp::mul:
    case ScalarOp::minimum:
    case ScalarOp::fmin:
    case ScalarOp::bit_and:
      return b.CreateAnd(v[0], v[1]);
    case ScalarOp::sub:
    case ScalarOp::bit_xor:
      return b.CreateXor(v[0], v[1]);
    default:
      no_such_op(op, DType::boolean);
  }
}

Value* emit_philox(llvm::IRBuilderBase& b, Value* index, Value* key, Value* counter_high) {
  const auto word = [&](uint64_t value) { return llvm::ConstantInt::get(index->getType(), value); };
  const std::array<Value*, 4> words = emit_philox_block(b, b.CreateLShr(index, word(2)), key, counter_high);
  Value* odd = b.CreateICmpNE(b.CreateAnd(index, word(1)), word(0));
  Value* upper = b.CreateICmpNE(b.CreateAnd(index, word(2)), word(0));
  return b.CreateSelect(upper, b.CreateSelect(odd, words[3], words[2]), b.CreateSelect(odd, words[1], words[0]));
}

}  // namespace tutti::codegen
