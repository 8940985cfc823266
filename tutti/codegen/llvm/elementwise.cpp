#include <algorithm>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/llvm/emitter.h"
#include "tutti/codegen/llvm/random_words.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

using llvm::Value;

namespace {

// How many instructions an operation is, roughly: 0 a handful, 1 a polynomial, 2 several or a loop. How long it takes
// is another question, which the compiler of graphs answers for itself.
int weight_of(ScalarOp op) {
  switch (op) {
    case ScalarOp::exp:
    case ScalarOp::exp2:
    case ScalarOp::log:
    case ScalarOp::log2:
    case ScalarOp::tanh:
    case ScalarOp::sigmoid:
    case ScalarOp::erf:
    case ScalarOp::erfcx:
      return 1;
    case ScalarOp::sqrt:
    case ScalarOp::rsqrt:
    case ScalarOp::reciprocal:
      return 0;
    case ScalarOp::pow:
    case ScalarOp::floordiv:
    case ScalarOp::truncdiv:
    case ScalarOp::remainder:
    case ScalarOp::fmod:
    case ScalarOp::philox:
    case ScalarOp::atan2:
      return 2;
    default:
      return op >= ScalarOp::exp && op <= ScalarOp::lgamma ? 2 : 0;
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
  const int64_t register_bytes = has_wide_registers(target) ? 64 : 32;
  return static_cast<unsigned>(std::min<int64_t>(register_bytes / widest, 32));
}

Emitter::LoopShape Emitter::loop_shape(llvm::ArrayRef<int32_t> roots, llvm::ArrayRef<size_t> outputs,
                                       unsigned lanes) const {
  bool strided = false;
  const auto look_at = [&](size_t k) {
    strided = strided || operand(k).inner == StrideClass::strided || spec.picks_per_element(operand(k));
  };
  int heaviest = 0, polynomials = 0, varying = 0;
  const std::vector<bool> needed = reachable(roots);
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (!needed[n] || is_uniform(static_cast<int32_t>(n))) continue;
    const ExprNode& node = spec.nodes[n];
    ++varying;
    heaviest = std::max(heaviest, weight_of(node.op));
    polynomials += weight_of(node.op) > 0 ? 1 : 0;
    if (node.op == ScalarOp::arg) look_at(static_cast<size_t>(node.index));
  }
  for (const size_t k : outputs) look_at(spec.inputs.size() + k);
  const bool light = heaviest == 0 && !strided && varying <= 24;
  // One polynomial waits for its own results, and the processor begins the next elements meanwhile. Of several in a row
  // it sees too few elements ahead, so vectors are computed side by side: as many as registers hold, half of them where
  // there are many polynomials, which are long enough.
  const int64_t registers = std::max<int64_t>(lanes / std::max(vector_lanes(roots), 1u), 1);
  const int64_t together = (polynomials <= 6 ? 4 : 2) * (has_wide_registers(target) ? 2 : 1);
  const int64_t side_by_side = polynomials < 2 || strided ? 1 : std::max<int64_t>(together / registers, 1);
  return {
      .unroll = !light        ? side_by_side
                : varying > 8 ? 2
                              : 4,
      .masked_only = has_wide_registers(target) && !strided && (heaviest == 2 || (varying > 60 && polynomials < 2))};
}

void Emitter::store_row(Frame& frame, llvm::ArrayRef<size_t> outputs, Value* end) {
  std::vector<int32_t> roots;
  for (const size_t k : outputs) roots.push_back(spec.results[k]);
  prepare_uniform(frame, roots);
  const auto store_chunks = [&](llvm::ArrayRef<Chunk> chunks) {
    const auto values = evaluate(frame, roots, chunks);
    for (size_t c = 0; c < chunks.size(); ++c) {
      for (size_t r = 0; r < roots.size(); ++r)
        store_elements(frame, spec.inputs.size() + outputs[r], chunks[c], values[c][r]);
    }
  };
  if (draws_in_blocks(*this, frame, roots)) {
    const BlockStretch stretch = block_stretch(*this, frame, roots, end);
    const int64_t lanes = frame.lanes;
    for_loop("blocks", stretch.begin, stretch.end, i64(kBlockChunks * lanes), [&](Value* i) {
      std::vector<Chunk> chunks;
      for (int64_t c = 0; c < kBlockChunks; ++c) chunks.push_back({b.CreateNSWAdd(i, i64(c * lanes))});
      frame.whole_blocks = true;
      store_chunks(chunks);
      frame.whole_blocks = false;
    });
    // What stands before the stretch and behind it, by one loop: elements do not wait for each other.
    for_loop("sides", i64(0), i64(2), i64(1), [&](Value* side) {
      Value* first = b.CreateICmpEQ(side, i64(0));
      Value* until = b.CreateSelect(first, stretch.begin, end);
      for_loop("tail", b.CreateSelect(first, i64(0), stretch.end), until, i64(lanes),
               [&](Value* i) { store_chunks(partial_chunk(i, until, frame.lanes)); });
    });
    return;
  }
  const LoopShape shape = loop_shape(roots, outputs, frame.lanes);
  const int64_t lanes = frame.lanes, step = shape.unroll * lanes;
  Value* whole = i64(0);
  if (!shape.masked_only || lanes == 1) {
    whole = b.CreateAnd(end, i64(-step));
    for_loop("vectors", i64(0), whole, i64(step), [&](Value* i) {
      std::vector<Chunk> chunks;
      for (int64_t u = 0; u < shape.unroll; ++u) chunks.push_back({b.CreateNSWAdd(i, i64(u * lanes))});
      store_chunks(chunks);
    });
    // Whole vectors behind them, unmasked: rows of 48 columns, as blocks of a matrix product have, would be all tail.
    if (shape.unroll > 1 && lanes > 1) {
      Value* single = b.CreateAnd(end, i64(-lanes));
      for_loop("singles", whole, single, i64(lanes), [&](Value* i) { store_chunks(Chunk{i}); });
      whole = single;
    }
  }
  if (lanes == 1) return;
  for_loop("tail", whole, end, i64(lanes), [&](Value* i) { store_chunks(partial_chunk(i, end, frame.lanes)); });
}

}  // namespace tutti::codegen
