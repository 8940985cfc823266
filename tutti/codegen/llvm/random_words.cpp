#include "tutti/codegen/llvm/random_words.h"

#include <map>
#include <optional>

#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

using llvm::Value;

namespace {

enum class Lane : uint8_t { own, even, odd };

// A word of position `position`, or of its even or odd neighbour.
struct Draw {
  int32_t position;
  Lane lane;
};

const ExprNode& node_of(const Emitter& e, int32_t n) { return e.spec.nodes[static_cast<size_t>(n)]; }

// Whether a node is linear_index plus something uniform.
bool is_consecutive(const Emitter& e, int32_t n) {
  const ExprNode& node = node_of(e, n);
  if (node.op == ScalarOp::linear_index) return e.spec.kind != LoopKind::column;
  if (node.op != ScalarOp::add) return false;
  const int32_t* o = node.operands;
  return (e.is_uniform(o[0]) && is_consecutive(e, o[1])) || (e.is_uniform(o[1]) && is_consecutive(e, o[0]));
}

std::optional<Draw> draw_of(const Emitter& e, const ExprNode& philox) {
  if (!e.is_uniform(philox.operands[1]) || !e.is_uniform(philox.operands[2])) return {};
  const ExprNode& index = node_of(e, philox.operands[0]);
  if (is_consecutive(e, philox.operands[0])) return Draw{philox.operands[0], Lane::own};
  const auto masks = [&](ScalarOp op, int64_t with) {
    const ExprNode& other = node_of(e, index.operands[1]);
    return index.op == op && other.op == ScalarOp::constant && other.i == with && is_consecutive(e, index.operands[0]);
  };
  if (masks(ScalarOp::bit_and, -2)) return Draw{index.operands[0], Lane::even};
  if (masks(ScalarOp::bit_or, 1)) return Draw{index.operands[0], Lane::odd};
  return {};
}

// visit(node, draw) for the random words that vary along the row and that `roots` need.
template <class Visit>
void for_each_draw(const Emitter& e, llvm::ArrayRef<int32_t> roots, Visit visit) {
  const std::vector<bool> needed = e.reachable(roots);
  for (size_t n = 0; n < needed.size(); ++n) {
    const int32_t id = static_cast<int32_t>(n);
    if (needed[n] && !e.is_uniform(id) && e.spec.nodes[n].op == ScalarOp::philox)
      visit(id, draw_of(e, e.spec.nodes[n]));
  }
}

// The position of element `element` of the row.
Value* position_of(Emitter& e, const Frame& frame, int32_t n, Value* element) {
  const ExprNode& node = node_of(e, n);
  if (node.op == ScalarOp::linear_index) return e.b.CreateAdd(frame.first_index, element);
  const bool first = e.is_uniform(node.operands[0]);
  Value* rest = position_of(e, frame, node.operands[first ? 1 : 0], element);
  return e.b.CreateAdd(frame.uniform[static_cast<size_t>(node.operands[first ? 0 : 1])], rest);
}

// Four vectors of words, lane by lane of blocks in order, become the words of neighbouring positions: four vectors too.
std::array<Value*, 4> in_order(llvm::IRBuilderBase& b, const std::array<Value*, 4>& words, int lanes) {
  const auto shuffle = [&](Value* x, Value* y, auto lane_of) {
    llvm::SmallVector<int, 16> mask;
    for (int j = 0; j < lanes; ++j) mask.push_back(lane_of(j));
    return b.CreateShuffleVector(x, y, mask);
  };
  // Words 0 and 1, 2 and 3 of the even or odd blocks; then all four of the first or second half of these blocks.
  Value* pairs[2][2];
  for (int odd = 0; odd < 2; ++odd) {
    for (int upper = 0; upper < 2; ++upper)
      pairs[odd][upper] = shuffle(words[static_cast<size_t>(2 * upper)], words[static_cast<size_t>(2 * upper + 1)],
                                  [&](int j) { return j / 2 * 2 + odd + (j % 2) * lanes; });
  }
  Value* blocks[2][2];
  for (int odd = 0; odd < 2; ++odd) {
    for (int half = 0; half < 2; ++half)
      blocks[odd][half] = shuffle(pairs[odd][0], pairs[odd][1],
                                  [&](int j) { return j / 4 * 2 + j % 2 + half * lanes / 2 + (j % 4 / 2) * lanes; });
  }
  if (lanes == 4) return {blocks[0][0], blocks[1][0], blocks[0][1], blocks[1][1]};
  std::array<Value*, 4> result;
  for (int k = 0; k < 4; ++k)
    result[static_cast<size_t>(k)] = shuffle(blocks[0][k / 2], blocks[1][k / 2], [&](int j) {
      return j % 4 + (j / 4 % 2) * lanes + j / 8 * 4 + (k % 2) * lanes / 2;
    });
  return result;
}

}  // namespace

std::array<Value*, 4> emit_philox_block(llvm::IRBuilderBase& b, Value* block, Value* key, Value* counter_high) {
  // Words are kept in the low half of i64 lanes, which is the form the 32 x 32 -> 64 bit multiplication wants.
  llvm::Type* type = block->getType();
  const auto word = [&](uint64_t value) { return llvm::ConstantInt::get(type, value); };
  const auto low = [&](Value* v) { return b.CreateAnd(v, word(0xffffffff)); };
  const auto high = [&](Value* v) { return b.CreateLShr(v, word(32)); };
  std::array<Value*, 4> counter = {low(block), high(block), low(counter_high), high(counter_high)};
  Value* keys[2] = {low(key), high(key)};
  for (int round = 0; round < 10; ++round) {
    Value* product0 = b.CreateMul(counter[0], word(0xD2511F53));
    Value* product1 = b.CreateMul(counter[2], word(0xCD9E8D57));
    counter[0] = b.CreateXor(b.CreateXor(high(product1), counter[1]), keys[0]);
    counter[2] = b.CreateXor(b.CreateXor(high(product0), counter[3]), keys[1]);
    counter[1] = low(product1);
    counter[3] = low(product0);
    keys[0] = low(b.CreateAdd(keys[0], word(0x9E3779B9)));
    keys[1] = low(b.CreateAdd(keys[1], word(0xBB67AE85)));
  }
  return counter;
}

bool draws_in_blocks(const Emitter& e, const Frame& frame, llvm::ArrayRef<int32_t> roots) {
  // Stores that meet happen in the order of elements, which blocks do not keep.
  for (const OperandSpec& output : e.spec.outputs) {
    if (output.index >= 0) return false;
  }
  bool any = false, all = true;
  for_each_draw(e, roots, [&](int32_t, const std::optional<Draw>& draw) { any = true, all = all && draw.has_value(); });
  return any && all && (frame.lanes == 4 || frame.lanes == 8);
}

BlockStretch block_stretch(Emitter& e, const Frame& frame, llvm::ArrayRef<int32_t> roots, Value* end) {
  llvm::IRBuilder<>& b = e.b;
  Value *begin = nullptr, *agree = b.getTrue();
  for_each_draw(e, roots, [&](int32_t, const std::optional<Draw>& draw) {
    Value* missing = b.CreateAnd(b.CreateNeg(position_of(e, frame, draw->position, e.i64(0))), e.i64(3));
    if (begin) agree = b.CreateAnd(agree, b.CreateICmpEQ(begin, missing));
    else begin = missing;
  });
  begin = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, begin, end);
  Value* whole = b.CreateAnd(b.CreateSub(end, begin), e.i64(-kBlockChunks * static_cast<int64_t>(frame.lanes)));
  return {begin, b.CreateSelect(agree, b.CreateAdd(begin, whole), begin)};
}

void fill_random_words(Emitter& e, const Frame& frame, llvm::ArrayRef<int32_t> roots, llvm::ArrayRef<Chunk> chunks,
                       std::vector<std::vector<Value*>>& values) {
  llvm::IRBuilder<>& b = e.b;
  const int lanes = static_cast<int>(frame.lanes);
  llvm::Type* type = widened(b.getInt64Ty(), frame.lanes);
  std::map<std::array<int32_t, 3>, std::vector<Value*>>
      known;  // by position, key, upper counter: the words of each chunk
  for_each_draw(e, roots, [&](int32_t id, const std::optional<Draw>& draw) {
    const ExprNode& node = node_of(e, id);
    std::vector<Value*>& words = known[{draw->position, node.operands[1], node.operands[2]}];
    if (words.empty()) {
      Value* first = b.CreateLShr(position_of(e, frame, draw->position, chunks[0].index), e.i64(2));
      Value* block = b.CreateAdd(splat(b, first, frame.lanes), b.CreateStepVector(type));
      for (size_t c = 0; c < chunks.size(); c += 4) {
        const auto of_blocks = emit_philox_block(b, block, frame.spread[static_cast<size_t>(node.operands[1])],
                                                 frame.spread[static_cast<size_t>(node.operands[2])]);
        for (Value* v : in_order(b, of_blocks, lanes)) words.push_back(v);
        block = b.CreateAdd(block, splat(b, e.i64(lanes), frame.lanes));
      }
    }
    for (size_t c = 0; c < chunks.size(); ++c) {
      Value* word = words[c];
      if (draw->lane != Lane::own) {
        llvm::SmallVector<int, 16> mask;
        for (int j = 0; j < lanes; ++j) mask.push_back(j / 2 * 2 + (draw->lane == Lane::odd));
        word = b.CreateShuffleVector(word, mask);
      }
      values[c][static_cast<size_t>(id)] = word;
    }
  });
}

}  // namespace tutti::codegen
