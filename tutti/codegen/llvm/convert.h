// Conversions between dtypes: storage to register and back, and the casts of Expr.
#pragma once

#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

// An element as it lies in memory (storage_type) to its register value: narrow floats become f32, booleans i1. Exact.
llvm::Value* widen_storage(llvm::IRBuilderBase& b, llvm::Value* stored, DType storage);

// A register value of compute_dtype(storage) to memory form, rounded to nearest even once; denormals are kept. The
// bits are those of to_bfloat16, to_float16, to_float8_* of core/dtype.h.
llvm::Value* round_to_storage(llvm::IRBuilderBase& b, llvm::Value* value, DType storage);

// Expr cast between compute dtypes. Float to integer truncates; NaN and what int64 cannot hold give the smallest
// int64, of which narrower integers keep the low bits (as store_from_double does). To boolean: nonzero.
llvm::Value* emit_cast(llvm::IRBuilderBase& b, llvm::Value* value, DType from, DType to);

// The same bits as another dtype of equal size. Booleans count as one byte.
llvm::Value* emit_bitcast(llvm::IRBuilderBase& b, llvm::Value* value, DType from, DType to);

}  // namespace tutti::codegen
