// LLVM types of Tutti's dtypes, and small value helpers shared by all emitters.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "tutti/core/dtype.h"

namespace tutti::codegen {

// `lanes` elements of `type`; one lane is the scalar itself.
inline llvm::Type* widened(llvm::Type* type, unsigned lanes) {
  return lanes == 1 ? type : llvm::FixedVectorType::get(type, lanes);
}

inline unsigned lanes_of(const llvm::Value* v) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  return vector ? vector->getNumElements() : 1;
}

// `element` with as many lanes as `like` has.
inline llvm::Type* like_lanes(llvm::Type* element, const llvm::Value* like) { return widened(element, lanes_of(like)); }

inline llvm::Value* splat(llvm::IRBuilderBase& b, llvm::Value* scalar, unsigned lanes) {
  return lanes == 1 ? scalar : b.CreateVectorSplat(lanes, scalar);
}

// Whether any lane of a truth value is set, as one i1.
inline llvm::Value* any_lane(llvm::IRBuilderBase& b, llvm::Value* truths) {
  return lanes_of(truths) == 1 ? truths : b.CreateOrReduce(truths);
}

// Adds the bits of `flag` to the i32 in `slot` when any lane of `truths` is set.
inline void raise_flag(llvm::IRBuilderBase& b, llvm::Value* slot, llvm::Value* truths, uint32_t flag) {
  llvm::Value* raised = b.CreateSelect(any_lane(b, truths), b.getInt32(flag), b.getInt32(0));
  b.CreateStore(b.CreateOr(b.CreateLoad(b.getInt32Ty(), slot), raised), slot);
}

// The type a node of compute dtype `dtype` has in registers; booleans are i1.
llvm::Type* register_type(llvm::LLVMContext& context, DType dtype);
// The type of one element in memory: bf16, f16 and fp8 are integers of their width, booleans i8.
llvm::Type* storage_type(llvm::LLVMContext& context, DType dtype);

inline bool is_signed(DType dtype) { return is_integral(dtype) && dtype != DType::u8; }

}  // namespace tutti::codegen
