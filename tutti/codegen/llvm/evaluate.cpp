#include "tutti/codegen/llvm/emitter.h"
#include "tutti/codegen/llvm/random_words.h"
#include "tutti/codegen/llvm/scalar_ops.h"
#include "tutti/core/error.h"
#include "tutti/core/expr_walk.h"

namespace tutti::codegen {

using llvm::Value;

void Emitter::find_uniform() {
  uniform_.resize(spec.nodes.size());
  const bool column = spec.kind == LoopKind::column;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const ExprNode& node = spec.nodes[n];
    switch (node.op) {
      // An operand that stays along the vector dim of a column kernel still moves along the reduced one.
      case ScalarOp::arg:
        uniform_[n] = !column && !spec.moves_along_row(operand(static_cast<size_t>(node.index)));
        break;
      case ScalarOp::linear_index:
      case ScalarOp::inner_index:
        uniform_[n] = false;
        break;
      case ScalarOp::reduced:
        uniform_[n] = spec.kind == LoopKind::row;
        break;
      case ScalarOp::param:
      case ScalarOp::constant:
      case ScalarOp::row_length:
        uniform_[n] = true;
        break;
      default:
        uniform_[n] = true;
        for (int k = 0; k < arity_of(node.op); ++k) uniform_[n] = uniform_[n] && is_uniform(node.operands[k]);
    }
  }
}

std::vector<bool> Emitter::reachable(llvm::ArrayRef<int32_t> roots) const {
  return needed_by({roots.data(), roots.size()}, spec.nodes);
}

Value* Emitter::uniform_leaf(Frame& frame, const ExprNode& node) {
  switch (node.op) {
    case ScalarOp::arg:
      return load_scalar(frame, static_cast<size_t>(node.index), i64(0));
    case ScalarOp::param:
      return params_[static_cast<size_t>(&node - spec.nodes.data())];
    case ScalarOp::row_length:
      return frame.length;
    case ScalarOp::reduced:
      return frame.reduced[static_cast<size_t>(node.index)];
    default:
      break;
  }
  llvm::Type* type = register_type(b.getContext(), node.dtype);
  if (is_floating(node.dtype)) return llvm::ConstantFP::get(type, node.f);
  return llvm::ConstantInt::get(type, static_cast<uint64_t>(node.dtype == DType::boolean ? node.i != 0 : node.i));
}

void Emitter::prepare_uniform(Frame& frame, llvm::ArrayRef<int32_t> roots) {
  frame.uniform.resize(spec.nodes.size());
  frame.spread.resize(spec.nodes.size());
  const std::vector<bool> needed = reachable(roots);
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (!needed[n] || !uniform_[n] || frame.spread[n]) continue;
    const ExprNode& node = spec.nodes[n];
    const int arity = arity_of(node.op);
    if (arity == 0) {
      frame.uniform[n] = uniform_leaf(frame, node);
    } else {
      Value* operands[3] = {};
      for (int k = 0; k < arity; ++k) operands[k] = frame.uniform[static_cast<size_t>(node.operands[k])];
      const DType from = spec.nodes[static_cast<size_t>(node.operands[0])].dtype;
      frame.uniform[n] = emit_op({b, nullptr, frame.error}, node, from, {operands, static_cast<size_t>(arity)});
    }
    frame.spread[n] = splat(b, frame.uniform[n], frame.lanes);
  }
}

Value* Emitter::leaf(Frame& frame, const ExprNode& node, const Chunk& chunk) {
  const auto positions = [&](Value* first) -> Value* {
    Value* start = splat(b, first, frame.lanes);
    if (frame.lanes == 1) return start;
    return b.CreateAdd(start, b.CreateStepVector(widened(b.getInt64Ty(), frame.lanes)));
  };
  switch (node.op) {
    case ScalarOp::arg:
      return load_elements(frame, static_cast<size_t>(node.index), chunk);
    case ScalarOp::linear_index:
      return positions(b.CreateAdd(frame.first_index, chunk.index));
    case ScalarOp::inner_index:
      return frame.reduce_index ? splat(b, frame.reduce_index, frame.lanes) : positions(chunk.index);
    case ScalarOp::reduced:
      return frame.reduced[static_cast<size_t>(node.index)];
    default:
      throw InternalError(fmt::format("kernel: leaf {} outside of a frame", name_of(node.op)));
  }
}

std::vector<std::vector<Value*>> Emitter::evaluate(Frame& frame, llvm::ArrayRef<int32_t> roots,
                                                   llvm::ArrayRef<Chunk> chunks) {
  const std::vector<bool> needed = reachable(roots);
  std::vector<std::vector<Value*>> values(chunks.size(), frame.spread);
  if (frame.whole_blocks) fill_random_words(*this, frame, roots, chunks, values);
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (!needed[n] || uniform_[n] || frame.spread[n]) continue;
    const ExprNode& node = spec.nodes[n];
    if (frame.whole_blocks && node.op == ScalarOp::philox) continue;
    const int arity = arity_of(node.op);
    for (size_t c = 0; c < chunks.size(); ++c) {
      if (arity == 0) {
        values[c][n] = leaf(frame, node, chunks[c]);
        continue;
      }
      Value* operands[3] = {};
      for (int k = 0; k < arity; ++k) operands[k] = values[c][static_cast<size_t>(node.operands[k])];
      const DType from = spec.nodes[static_cast<size_t>(node.operands[0])].dtype;
      values[c][n] = emit_op({b, chunks[c].mask, frame.error}, node, from, {operands, static_cast<size_t>(arity)});
    }
  }
  std::vector<std::vector<Value*>> results(chunks.size());
  for (size_t c = 0; c < chunks.size(); ++c) {
    for (const int32_t root : roots) results[c].push_back(values[c][static_cast<size_t>(root)]);
  }
  return results;
}

}  // namespace tutti::codegen
