// Operands whose address comes from memory: an index, an element of another operand, times the operand's pick stride.
//
// An index that stays along the row moves the whole row: its accesses are those of any other operand, whole vectors
// included. With an index per element every lane has an address; lanes without a place of their own (beyond the end of
// the row, index out of range) take no part. On AVX-512 such vectors of 4 and 8 byte elements are gathers and scatters,
// whose overlapping stores land in lane order; the other ones go lane by lane, those without a place from a zero or to
// a word nobody reads, which needs no branches.
#include <cstddef>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/llvm/emitter.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

using llvm::Value;

void Emitter::load_picks(Frame& frame, Value* call) {
  frame.pick_bytes.assign(operand_count(), nullptr);
  frame.extent.assign(operand_count(), nullptr);
  bool per_element = false;
  for (size_t k = 0; k < operand_count(); ++k) {
    if (operand(k).index < 0) continue;
    Value* pick = operand_field(call, k, offsetof(OperandCall, pick), b.getInt64Ty());
    frame.pick_bytes[k] = b.CreateMul(pick, i64(itemsize(operand(k).dtype)));
    frame.extent[k] = operand_field(call, k, offsetof(OperandCall, extent), b.getInt64Ty());
    per_element = per_element || spec.picks_per_element(operand(k));
  }
  if (!per_element) return;
  frame.nothing = slot(b.getInt64Ty(), "nothing");
  frame.discarded = slot(b.getInt64Ty(), "discarded");
  b.CreateStore(i64(0), frame.nothing);
}

// The indices of picked operand `k` as i64, one per lane or one for the row.
Value* Emitter::index_element(Frame& frame, size_t k, const Chunk& chunk) {
  const size_t from = static_cast<size_t>(operand(k).index);
  Value* index =
      spec.picks_per_element(operand(k)) ? load_elements(frame, from, chunk) : load_scalar(frame, from, chunk.index);
  return b.CreateSExt(index, like_lanes(b.getInt64Ty(), index));
}

void Emitter::with_row_picks(Frame& frame, const std::function<void()>& body) {
  Value* legal = nullptr;
  for (size_t k = 0; k < operand_count(); ++k) {
    if (operand(k).index < 0 || spec.picks_per_element(operand(k))) continue;
    Value* index = index_element(frame, k, {i64(0)});
    Value* in_range = b.CreateICmpULT(index, frame.extent[k]);  // a negative index is a huge one
    legal = legal ? b.CreateAnd(legal, in_range) : in_range;
    frame.base[k] = b.CreateGEP(b.getInt8Ty(), frame.base[k], b.CreateMul(index, frame.pick_bytes[k]));
  }
  if (!legal) return body();
  raise_flag(b, frame.error, b.CreateNot(legal), kIndexOutOfRange);
  if_then(legal, body);
}

Emitter::Places Emitter::picked_places(Frame& frame, size_t k, const Chunk& chunk) {
  Value* index = index_element(frame, k, chunk);
  Value* legal = b.CreateICmpULT(index, splat(b, frame.extent[k], frame.lanes));
  Value* bad = b.CreateNot(legal);
  if (chunk.mask) {
    bad = b.CreateAnd(bad, chunk.mask);
    legal = b.CreateAnd(legal, chunk.mask);
  }
  raise_flag(b, frame.error, bad, kIndexOutOfRange);
  Value* bytes = b.CreateMul(index, splat(b, frame.pick_bytes[k], frame.lanes));
  if (operand(k).inner != StrideClass::broadcast && frame.lanes > 1) {
    Value* step = operand(k).inner == StrideClass::contiguous ? i64(itemsize(operand(k).dtype)) : frame.inner_bytes[k];
    Value* lane = b.CreateStepVector(widened(b.getInt64Ty(), frame.lanes));
    bytes = b.CreateAdd(bytes, b.CreateMul(lane, splat(b, step, frame.lanes)));
  }
  return {b.CreateGEP(b.getInt8Ty(), element_address(frame, k, chunk.index), bytes), legal};
}

Value* Emitter::safe_addresses(const Places& places, Value* otherwise) {
  return b.CreateSelect(places.legal, places.addresses, splat(b, otherwise, lanes_of(places.legal)));
}

bool Emitter::has_gather(llvm::Type* item) const {
  return has_wide_registers(target) && item->getScalarSizeInBits() >= 32;
}

Value* Emitter::load_picked(Frame& frame, size_t k, const Chunk& chunk) {
  llvm::Type* item = storage_type(b.getContext(), operand(k).dtype);
  llvm::Type* type = widened(item, frame.lanes);
  const llvm::Align align(item->getScalarSizeInBits() / 8);
  const Places places = picked_places(frame, k, chunk);
  if (frame.lanes == 1) return b.CreateAlignedLoad(item, safe_addresses(places, frame.nothing), align);
  if (has_gather(item))
    return b.CreateMaskedGather(type, places.addresses, align, places.legal, llvm::Constant::getNullValue(type));
  Value* addresses = safe_addresses(places, frame.nothing);
  Value* stored = llvm::PoisonValue::get(type);
  for (unsigned lane = 0; lane < frame.lanes; ++lane)
    stored =
        b.CreateInsertElement(stored, b.CreateAlignedLoad(item, b.CreateExtractElement(addresses, lane), align), lane);
  return stored;
}

void Emitter::store_picked(Frame& frame, size_t k, const Chunk& chunk, Value* stored) {
  const llvm::Align align(stored->getType()->getScalarSizeInBits() / 8);
  const Places places = picked_places(frame, k, chunk);
  if (frame.lanes > 1 && has_gather(stored->getType())) {
    b.CreateMaskedScatter(stored, places.addresses, align, places.legal);
    return;
  }
  Value* addresses = safe_addresses(places, frame.discarded);
  if (frame.lanes == 1) {
    b.CreateAlignedStore(stored, addresses, align);
    return;
  }
  for (unsigned lane = 0; lane < frame.lanes; ++lane)
    b.CreateAlignedStore(b.CreateExtractElement(stored, lane), b.CreateExtractElement(addresses, lane), align);
}

}  // namespace tutti::codegen
