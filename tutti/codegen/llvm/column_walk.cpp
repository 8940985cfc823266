#include "tutti/codegen/llvm/column_walk.h"

#include <cstddef>

#include "tutti/codegen/llvm/row_prefetch.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

using llvm::Value;

Value* strips_of(Emitter& e, Value* columns, unsigned lanes) {
  return e.b.CreateLShr(e.b.CreateAdd(columns, e.i64(lanes - 1)), e.i64(llvm::Log2_32(lanes)));
}

Chunk strip_chunk(Emitter& e, const ColumnBlock& block, Value* strip) {
  Value* index = e.b.CreateAdd(block.index, e.b.CreateMul(strip, e.i64(block.lanes)));
  if (!block.masked) return {index};
  return e.partial_chunk(index, e.b.CreateAdd(block.index, block.count), block.lanes);
}

ColumnWalk::ColumnWalk(Emitter& e, FrameState& states, Value* call, Value* state, const ColumnBlock& block,
                       std::vector<int32_t> nodes, size_t reductions)
    : e_(e),
      states_(states),
      state_(state),
      block_(block),
      nodes_(std::move(nodes)),
      reductions_(reductions),
      from_rows_(inputs_in_rows(e, nodes_)),
      frame_(states.read_frame(state, block.lanes)) {
  e.prepare_uniform(frame_, nodes_);
  for (size_t k = 0; k < e.operand_count(); ++k)
    reduce_bytes_.push_back(e.b.CreateMul(e.operand_field(call, k, offsetof(OperandCall, reduce), e.b.getInt64Ty()),
                                          e.i64(itemsize(e.operand(k).dtype))));
  fixed_ = nodes_down_columns();
  for (const int32_t n : fixed_) {
    llvm::Type* type = register_type(e.b.getContext(), e.spec.nodes[static_cast<size_t>(n)].dtype);
    fixed_values_.push_back(e.slot(widened(type, block.lanes), "fixed", kMostStrips));
  }
}

// The last nodes that depend on reductions alone, on the way to values of elements.
std::vector<int32_t> ColumnWalk::nodes_down_columns() const {
  const std::vector<bool> needed = e_.reachable(nodes_);
  std::vector<bool> is_fixed(needed.size()), is_last(needed.size());
  for (size_t n = 0; n < needed.size(); ++n) {
    const ExprNode& node = e_.spec.nodes[n];
    const int arity = arity_of(node.op);
    is_fixed[n] = arity > 0 || node.op == ScalarOp::reduced || e_.is_uniform(static_cast<int32_t>(n));
    for (int k = 0; k < arity; ++k) is_fixed[n] = is_fixed[n] && is_fixed[static_cast<size_t>(node.operands[k])];
    for (int k = 0; k < arity && needed[n] && !is_fixed[n]; ++k) is_last[static_cast<size_t>(node.operands[k])] = true;
  }
  for (const int32_t root : nodes_) is_last[static_cast<size_t>(root)] = true;
  std::vector<int32_t> fixed;
  for (size_t n = 0; n < needed.size(); ++n) {
    const int32_t id = static_cast<int32_t>(n);
    if (is_last[n] && is_fixed[n] && !e_.is_uniform(id) && arity_of(e_.spec.nodes[n].op) > 0) fixed.push_back(id);
  }
  return fixed;
}

void ColumnWalk::compute_columns(Value* strips) {
  e_.for_loop("strip", e_.i64(0), strips, e_.i64(1), [&](Value* strip) {
    Frame at = frame_;
    at.reduced = states_.read_results(state_, strip, reductions_);
    const std::vector<Value*> values = e_.evaluate(at, fixed_, strip_chunk(e_, block_, strip))[0];
    for (size_t i = 0; i < fixed_.size(); ++i)
      e_.b.CreateStore(values[i], e_.b.CreateGEP(values[i]->getType(), fixed_values_[i], strip));
  });
}

Frame ColumnWalk::frame_at(Value* r) const {
  Frame at = frame_;
  at.reduce_index = r;
  for (size_t k = 0; k < e_.operand_count(); ++k)
    at.base[k] = e_.b.CreateGEP(e_.b.getInt8Ty(), frame_.base[k], e_.b.CreateMul(r, reduce_bytes_[k]));
  return at;
}

void ColumnWalk::for_elements(Value* start, Value* count, const Body& body) {
  Value* strips = strips_of(e_, block_.count, block_.lanes);
  if (!fixed_.empty()) e_.if_then(e_.b.CreateICmpSGT(count, e_.i64(0)), [&] { compute_columns(strips); });
  e_.for_loop("element", e_.i64(0), count, e_.i64(1), [&](Value* k) {
    Value* r = e_.b.CreateAdd(start, k);
    const Frame row = frame_at(r);
    const Frame row_ahead = frame_at(e_.b.CreateAdd(r, e_.i64(kRowsAhead)));
    e_.for_loop("strip", e_.i64(0), strips, e_.i64(1), [&](Value* strip) {
      Frame at = row;
      at.reduced = states_.read_results(state_, strip, reductions_);
      for (size_t i = 0; i < fixed_.size(); ++i) {
        llvm::Type* type = llvm::cast<llvm::AllocaInst>(fixed_values_[i])->getAllocatedType();
        at.spread[static_cast<size_t>(fixed_[i])] =
            e_.b.CreateLoad(type, e_.b.CreateGEP(type, fixed_values_[i], strip));
      }
      const Chunk chunk = strip_chunk(e_, block_, strip);
      ask_for(e_, row_ahead, from_rows_, chunk, block_.lanes);
      body({strip, r, k, at, chunk, e_.evaluate(at, nodes_, chunk)[0]});
    });
  });
}

}  // namespace tutti::codegen
