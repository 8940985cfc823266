// Asks for a row of memory before it is read: the processor's own prefetchers stop at every page, and a column
// reduction meets another page with every row. Private to the column kernel.
#pragma once

#include <vector>

#include "tutti/codegen/llvm/emitter.h"

namespace tutti::codegen {

// Measured for 0 to 16: the next row is best, because what is asked for stays in the first-level cache until it is
// read.
inline constexpr int64_t kRowsAhead = 1;

// The inputs that `values` read in whole pieces of a row.
inline std::vector<size_t> inputs_in_rows(Emitter& e, const std::vector<int32_t>& values) {
  const std::vector<bool> needed = e.reachable(values);
  std::vector<bool> read(e.spec.inputs.size());
  for (size_t n = 0; n < needed.size(); ++n)
    if (needed[n] && e.spec.nodes[n].op == ScalarOp::arg) read[static_cast<size_t>(e.spec.nodes[n].index)] = true;
  std::vector<size_t> inputs;
  for (size_t k = 0; k < read.size(); ++k)
    if (read[k] && e.operand(k).inner == StrideClass::contiguous && e.operand(k).index < 0) inputs.push_back(k);
  return inputs;
}

// No address is too far: a prefetch never faults.
inline void ask_for(Emitter& e, const Frame& row, const std::vector<size_t>& inputs, const Chunk& chunk,
                    int64_t lanes) {
  llvm::IRBuilder<>& b = e.b;
  for (const size_t k : inputs) {
    const int64_t item = itemsize(e.operand(k).dtype);
    llvm::Value* address = b.CreateGEP(b.getInt8Ty(), row.base[k], b.CreateMul(chunk.index, e.i64(item)));
    for (int64_t byte = 0; byte < lanes * item; byte += 64)
      b.CreateIntrinsic(llvm::Intrinsic::prefetch, {address->getType()},
                        {b.CreateConstGEP1_64(b.getInt8Ty(), address, static_cast<uint64_t>(byte)), b.getInt32(0),
                         b.getInt32(3), b.getInt32(1)});
  }
}

}  // namespace tutti::codegen
