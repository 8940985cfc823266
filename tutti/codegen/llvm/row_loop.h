// The loop over rows that pointwise, row and scan kernels share.
#pragma once

#include <functional>
#include <string>

#include "tutti/codegen/llvm/emitter.h"

namespace tutti::codegen {

// Emits the exported function `name`: for each o < n_outer a frame with the operands' rows, then `row(call, frame)`.
void emit_row_loop(Emitter& e, const std::string& name, unsigned lanes,
                   const std::function<void(llvm::Value* call, Frame& frame)>& row);

}  // namespace tutti::codegen
