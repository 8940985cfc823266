// Random words of neighbouring elements: a Philox block holds four, so a vector of blocks gives four vectors of words.
//
// A row draws in blocks when every random word that varies along it belongs to position `linear_index` plus something
// uniform, or to one of that position's pair (bit_and -2, bit_or 1). Where the position of lane 0 is a multiple of
// four, whole blocks are computed once instead of four times.
#pragma once

#include <array>

#include "tutti/codegen/llvm/emitter.h"

namespace tutti::codegen {

// Philox4x32-10 (core/philox.h) of block numbers, with 64-bit key and upper counter half; the four words, all i64.
std::array<llvm::Value*, 4> emit_philox_block(llvm::IRBuilderBase& b, llvm::Value* block, llvm::Value* key,
                                              llvm::Value* counter_high);

// Chunks that are computed together from whole blocks.
inline constexpr int64_t kBlockChunks = 8;

bool draws_in_blocks(const Emitter& e, const Frame& frame, llvm::ArrayRef<int32_t> roots);

// How many elements at the start of a row of `end` come before a whole block, and the end of the stretch behind them
// that can be computed by kBlockChunks chunks: the stretch is empty when two draws do not agree on where blocks begin.
struct BlockStretch {
  llvm::Value *begin, *end;
};
BlockStretch block_stretch(Emitter& e, const Frame& frame, llvm::ArrayRef<int32_t> roots, llvm::Value* end);

// Sets the random words that `roots` need: values[c][node]. Chunks follow each other, the first at a whole block.
void fill_random_words(Emitter& e, const Frame& frame, llvm::ArrayRef<int32_t> roots, llvm::ArrayRef<Chunk> chunks,
                       std::vector<std::vector<llvm::Value*>>& values);

}  // namespace tutti::codegen
