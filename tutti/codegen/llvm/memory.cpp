// Elements between memory and vectors. Full contiguous vectors are plain loads and stores. Partial vectors use masked
// ones where the machine has them (AVX-512: all widths; AVX2: 32 and 64 bit); otherwise, and for partial strided
// vectors, elements pass through a stack buffer by a small copying loop that all operands of one width share. Elements
// with an address each are in picked.cpp.
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/llvm/convert.h"
#include "tutti/codegen/llvm/emitter.h"

namespace tutti::codegen {

using llvm::Value;

namespace {

uint64_t item_bytes(llvm::Type* type) { return type->getScalarSizeInBits() / 8; }

}  // namespace

bool Emitter::can_mask(llvm::Type* type) const { return has_wide_registers(target) || item_bytes(type) >= 4; }

Value* Emitter::element_address(Frame& frame, size_t k, Value* index) {
  if (operand(k).inner == StrideClass::broadcast) return frame.base[k];
  if (operand(k).inner == StrideClass::contiguous)
    return b.CreateGEP(storage_type(b.getContext(), operand(k).dtype), frame.base[k], index);
  return b.CreateGEP(b.getInt8Ty(), frame.base[k], b.CreateMul(index, frame.inner_bytes[k]));
}

// void copy(destination, destination step, source, source step, count): `count` items, steps in bytes.
llvm::Function* Emitter::staging_copy(unsigned bytes) {
  if (staging_[bytes]) return staging_[bytes];
  const llvm::IRBuilderBase::InsertPoint here = b.saveIP();
  llvm::Type* ptr = b.getPtrTy();
  llvm::Type* word = b.getInt64Ty();
  auto* type = llvm::FunctionType::get(b.getVoidTy(), {ptr, word, ptr, word, word}, false);
  llvm::Function* function = begin_function("copy_items_" + std::to_string(bytes), type, false);
  function->addFnAttr(llvm::Attribute::NoInline);
  llvm::Type* item = b.getIntNTy(bytes * 8);
  for_loop("item", i64(0), function->getArg(4), i64(1), [&](Value* i) {
    Value* to = b.CreateGEP(b.getInt8Ty(), function->getArg(0), b.CreateMul(i, function->getArg(1)));
    Value* from = b.CreateGEP(b.getInt8Ty(), function->getArg(2), b.CreateMul(i, function->getArg(3)));
    b.CreateAlignedStore(b.CreateAlignedLoad(item, from, llvm::Align(1)), to, llvm::Align(1));
  });
  b.CreateRetVoid();
  b.restoreIP(here);
  return staging_[bytes] = function;
}

Value* Emitter::load_scalar(Frame& frame, size_t k, Value* index) {
  llvm::Type* item = storage_type(b.getContext(), operand(k).dtype);
  return widen_storage(b, b.CreateLoad(item, element_address(frame, k, index)), operand(k).dtype);
}

void Emitter::store_scalar(Frame& frame, size_t k, Value* index, Value* value) {
  b.CreateStore(round_to_storage(b, value, operand(k).dtype), element_address(frame, k, index));
}

Value* Emitter::load_elements(Frame& frame, size_t k, const Chunk& chunk) {
  const DType dtype = operand(k).dtype;
  if (spec.picks_per_element(operand(k))) return widen_storage(b, load_picked(frame, k, chunk), dtype);
  if (operand(k).inner == StrideClass::broadcast) return splat(b, load_scalar(frame, k, chunk.index), frame.lanes);
  if (frame.lanes == 1) return load_scalar(frame, k, chunk.index);
  llvm::Type* item = storage_type(b.getContext(), dtype);
  llvm::Type* type = widened(item, frame.lanes);
  const llvm::Align align(item_bytes(item));
  const bool contiguous = operand(k).inner == StrideClass::contiguous;
  Value* address = element_address(frame, k, chunk.index);
  Value* stored = nullptr;
  if (contiguous && !chunk.mask) {
    stored = b.CreateAlignedLoad(type, address, align);
  } else if (contiguous && can_mask(item)) {
    stored = b.CreateMaskedLoad(type, address, align, chunk.mask, llvm::Constant::getNullValue(type));
  } else if (chunk.mask) {
    Value* buffer = slot(type, "staged");
    b.CreateStore(llvm::Constant::getNullValue(type), buffer);
    Value* step = contiguous ? i64(static_cast<int64_t>(item_bytes(item))) : frame.inner_bytes[k];
    b.CreateCall(staging_copy(static_cast<unsigned>(item_bytes(item))),
                 {buffer, i64(static_cast<int64_t>(item_bytes(item))), address, step, chunk.count});
    stored = b.CreateLoad(type, buffer);
  } else {
    stored = llvm::PoisonValue::get(type);
    for (unsigned lane = 0; lane < frame.lanes; ++lane) {
      stored = b.CreateInsertElement(stored, b.CreateAlignedLoad(item, address, align), lane);
      address = b.CreateGEP(b.getInt8Ty(), address, frame.inner_bytes[k]);
    }
  }
  return widen_storage(b, stored, dtype);
}

void Emitter::store_elements(Frame& frame, size_t k, const Chunk& chunk, Value* value) {
  const DType dtype = operand(k).dtype;
  if (spec.picks_per_element(operand(k))) return store_picked(frame, k, chunk, round_to_storage(b, value, dtype));
  if (frame.lanes == 1) return store_scalar(frame, k, chunk.index, value);
  llvm::Type* item = storage_type(b.getContext(), dtype);
  const llvm::Align align(item_bytes(item));
  const bool contiguous = operand(k).inner == StrideClass::contiguous;
  Value* stored = round_to_storage(b, value, dtype);
  Value* address = element_address(frame, k, chunk.index);
  if (contiguous && !chunk.mask) {
    b.CreateAlignedStore(stored, address, align);
  } else if (contiguous && can_mask(item)) {
    b.CreateMaskedStore(stored, address, align, chunk.mask);
  } else if (chunk.mask) {
    Value* buffer = slot(stored->getType(), "staged");
    b.CreateStore(stored, buffer);
    Value* step = contiguous ? i64(static_cast<int64_t>(item_bytes(item))) : frame.inner_bytes[k];
    b.CreateCall(staging_copy(static_cast<unsigned>(item_bytes(item))),
                 {address, step, buffer, i64(static_cast<int64_t>(item_bytes(item))), chunk.count});
  } else {
    for (unsigned lane = 0; lane < frame.lanes; ++lane) {
      b.CreateAlignedStore(b.CreateExtractElement(stored, lane), address, align);
      address = b.CreateGEP(b.getInt8Ty(), address, frame.inner_bytes[k]);
    }
  }
}

}  // namespace tutti::codegen
