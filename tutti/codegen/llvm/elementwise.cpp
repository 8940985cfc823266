#include <algorithm>

#include "tutti/codegen/llvm/emitter.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

using llvm::Value;

namespace {

// Operations that are a handful of instructions; a kernel made of few of them is bound by loop and memory, and unrolls.
bool is_cheap(ScalarOp op) {
  switch (op) {
    case ScalarOp::pow:
    case ScalarOp::floordiv:
    case ScalarOp::truncdiv:
    case ScalarOp::remainder:
    case ScalarOp::fmod:
    case ScalarOp::philox:
    case ScalarOp::atan2: return false;
    default: return op < ScalarOp::exp || op > ScalarOp::lgamma || (op >= ScalarOp::sqrt && op <= ScalarOp::reciprocal);
  }
}

}  // namespace

Chunk Emitter::partial_chunk(Value* index, Value* end, unsigned lanes) {
  Value* left = b.CreateSub(end, index);
  Value* count = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, i64(lanes));
  if (lanes == 1) return {index};
  Value* steps = b.CreateStepVector(widened(b.getInt32Ty(), lanes));
  return {index, b.CreateICmpULT(steps, splat(b, b.CreateTrunc(count, b.getInt32Ty()), lanes)), count};
}

// As many lanes as one register holds of the widest type in use.
unsigned Emitter::vector_lanes(llvm::ArrayRef<int32_t> roots) const {
  const std::vector<bool> needed = reachable(roots);
  int64_t widest = 1;
  for (const int32_t root : roots) widest = std::max(widest, itemsize(spec.nodes[static_cast<size_t>(root)].dtype));
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (!needed[n] || uniform_[n]) continue;
    widest = std::max(widest, itemsize(spec.nodes[n].dtype));
  }
  const int64_t register_bytes = target == CpuTarget::avx512 ? 64 : 32;
  return static_cast<unsigned>(std::min<int64_t>(register_bytes / widest, 32));
}

void Emitter::store_row(Frame& frame, llvm::ArrayRef<size_t> outputs, Value* end) {
  std::vector<int32_t> roots;
  bool cheap = true, strided = false;
  for (const size_t k : outputs) {
    roots.push_back(spec.results[k]);
    strided = strided || spec.outputs[k].inner == StrideClass::strided;
  }
  const std::vector<bool> needed = reachable(roots);
  int varying = 0;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (!needed[n] || is_uniform(static_cast<int32_t>(n))) continue;
    const ExprNode& node = spec.nodes[n];
    ++varying;
    cheap = cheap && is_cheap(node.op);
    strided = strided || (node.op == ScalarOp::arg && spec.inputs[static_cast<size_t>(node.index)].inner == StrideClass::strided);
  }
  const int64_t unroll = !cheap || strided || varying > 24 ? 1 : varying > 8 ? 2 : 4;

  prepare_uniform(frame, roots);
  const auto store_chunks = [&](llvm::ArrayRef<Chunk> chunks) {
    const auto values = evaluate(frame, roots, chunks);
    for (size_t c = 0; c < chunks.size(); ++c) {
      for (size_t r = 0; r < roots.size(); ++r)
        store_elements(frame, spec.inputs.size() + outputs[r], chunks[c], values[c][r]);
    }
  };
  const int64_t lanes = frame.lanes, step = unroll * lanes;
  Value* whole = b.CreateAnd(end, i64(-step));
  for_loop("vectors", i64(0), whole, i64(step), [&](Value* i) {
    std::vector<Chunk> chunks;
    for (int64_t u = 0; u < unroll; ++u) chunks.push_back({b.CreateNSWAdd(i, i64(u * lanes))});
    store_chunks(chunks);
  });
  if (lanes == 1) return;
  for_loop("tail", whole, end, i64(lanes), [&](Value* i) { store_chunks(partial_chunk(i, end, frame.lanes)); });
}

}  // namespace tutti::codegen
