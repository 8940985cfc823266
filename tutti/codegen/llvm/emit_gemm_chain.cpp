// acc[i][j] = a[0][i] * b[0][j];  for the other items of the leaf:  acc[i][j] = fma(a[p][i], b[p][j], acc[i][j])
// The first product is what a chain from -0.0 has after one step (integers: from 0). A leaf of 16 k takes 8 to 10 %
// less time than with accumulators that are set first.
#include "tutti/codegen/llvm/emit_gemm_chain.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/llvm/convert.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {
namespace {

// Enough items per turn that loop overhead vanishes beside rows * vectors multiply-adds.
unsigned unroll_of(const GemmKernelSpec& spec) { return spec.rows * spec.vectors >= 16 ? 4 : 8; }

// What is asked for ahead of a packed B: up to kFewRows rows of A take each of its rows once, from memory, so as much
// as arrives while one line is on its way. Of a B in place, so many rows: more would be evicted where rows meet in the
// cache.
constexpr int64_t kFewRows = 4, kPrefetchBytesOfFew = 16384, kPrefetchBytes = 8192;
constexpr int64_t kPrefetchRows = 8, kWidePrefetchRows = 4;

}  // namespace

GemmChainEmitter::GemmChainEmitter(llvm::IRBuilder<>& b, llvm::Function* function, const GemmKernelSpec& spec,
                                   CpuTarget target, llvm::Value* a, llvm::Value* b_rows, llvm::Value* b_stride)
    : b_(b),
      function_(function),
      spec_(spec),
      target_(target),
      lanes_(static_cast<unsigned>(gemm_lanes(target, sum_dtype(spec.kind)))),
      rows_(static_cast<unsigned>(spec.rows)),
      vectors_(static_cast<unsigned>(spec.vectors)),
      item_(register_type(b.getContext(), packed_dtype(spec.kind))),
      vector_(widened(register_type(b.getContext(), sum_dtype(spec.kind)), lanes_)) {
  for (unsigned i = 0; i < rows_ * vectors_; ++i) accumulators_.push_back(b_.CreateAlloca(vector_));
  a_slot_ = b_.CreateAlloca(b_.getPtrTy());
  b_slot_ = b_.CreateAlloca(b_.getPtrTy());
  counter_ = b_.CreateAlloca(b_.getInt64Ty());
  b_.CreateStore(a, a_slot_);
  b_.CreateStore(b_rows, b_slot_);
  b_stride_bytes_ =
      b_.CreateMul(b_stride, b_.getInt64(static_cast<uint64_t>(itemsize(spec_.b_storage))), "", true, true);
  const int64_t row = int64_t{vectors_} * lanes_ * itemsize(spec_.b_storage);
  const int64_t rows_ahead = has_wide_registers(target) ? kWidePrefetchRows : kPrefetchRows;
  const int64_t bytes_ahead = spec.rows <= kFewRows ? kPrefetchBytesOfFew : kPrefetchBytes;
  const int64_t packed_rows_ahead = std::max(kPrefetchRows, bytes_ahead / row);
  prefetch_bytes_ =
      b_.CreateSelect(b_.CreateICmpEQ(b_stride_bytes_, b_.getInt64(static_cast<uint64_t>(row))),
                      b_.getInt64(static_cast<uint64_t>(row * packed_rows_ahead)),
                      b_.CreateMul(b_stride_bytes_, b_.getInt64(static_cast<uint64_t>(rows_ahead)), "", true, true));
}

llvm::Value* GemmChainEmitter::get(llvm::Value* slot) {
  return b_.CreateLoad(llvm::cast<llvm::AllocaInst>(slot)->getAllocatedType(), slot);
}
llvm::Value* GemmChainEmitter::moved(llvm::Value* pointer, llvm::Value* distance) {
  return b_.CreateInBoundsGEP(b_.getInt8Ty(), pointer, distance);
}
llvm::Value* GemmChainEmitter::moved(llvm::Value* pointer, int64_t distance) {
  return moved(pointer, b_.getInt64(static_cast<uint64_t>(distance)));
}
llvm::BasicBlock* GemmChainEmitter::block(const char* name) {
  return llvm::BasicBlock::Create(b_.getContext(), name, function_);
}

void GemmChainEmitter::count_down(const char* name, llvm::Value* counter, const std::function<void()>& body) {
  llvm::BasicBlock *loop = block(name), *done = block("done");
  llvm::Value* none = b_.CreateICmpEQ(get(counter), b_.getInt64(0));
  b_.CreateCondBr(none, done, loop);
  b_.SetInsertPoint(loop);
  body();
  llvm::Value* left = b_.CreateSub(get(counter), b_.getInt64(1), "", true, true);
  b_.CreateStore(left, counter);
  b_.CreateCondBr(b_.CreateICmpEQ(left, b_.getInt64(0)), done, loop);
  b_.SetInsertPoint(done);
}

void GemmChainEmitter::for_tile(const std::function<void(unsigned, unsigned, llvm::Value*)>& body) {
  for (unsigned i = 0; i < rows_; ++i)
    for (unsigned j = 0; j < vectors_; ++j) body(i, j, accumulators_[i * vectors_ + j]);
}

llvm::Value* GemmChainEmitter::zero() const {
  return is_integer() ? llvm::Constant::getNullValue(vector_) : llvm::ConstantFP::getNegativeZero(vector_);
}

// The sum of the products of the two 16-bit halves of each lane.
llvm::Value* GemmChainEmitter::pair_sums(llvm::Value* x, llvm::Value* y) {
  llvm::Type* halves = widened(b_.getInt16Ty(), 2 * lanes_);
  const auto madd = lanes_ == 16 ? llvm::Intrinsic::x86_avx512_pmaddw_d_512 : llvm::Intrinsic::x86_avx2_pmadd_wd;
  return b_.CreateIntrinsic(madd, {}, {b_.CreateBitCast(x, halves), b_.CreateBitCast(y, halves)});
}

// Sums of four products of bytes, those of x without a sign. Without dot units in two steps, for bytes of even and of
// odd place, which takes longer than pairs: processors without them need it in tests only.
llvm::Value* GemmChainEmitter::dot_units(llvm::Value* x, llvm::Value* y, llvm::Value* sum_so_far) {
  if (target_ >= CpuTarget::avx512vnni)
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpdpbusd_512, {}, {sum_so_far, x, y});
  llvm::Type* halves = widened(b_.getInt16Ty(), 2 * lanes_);
  llvm::Value *of_x = b_.CreateBitCast(x, halves), *of_y = b_.CreateBitCast(y, halves);
  llvm::Value* even = pair_sums(b_.CreateAnd(of_x, 0xff), b_.CreateAShr(b_.CreateShl(of_y, 8), 8));
  return b_.CreateAdd(b_.CreateAdd(even, pair_sums(b_.CreateLShr(of_x, 8), b_.CreateAShr(of_y, 8))), sum_so_far);
}

llvm::Value* GemmChainEmitter::multiply(llvm::Value* x, llvm::Value* y) {
  if (spec_.kind == TileKind::bf16_pairs || spec_.kind == TileKind::int8_quads) return multiply_add(x, y, zero());
  return is_integer() ? pair_sums(x, y) : b_.CreateFMul(x, y);
}

llvm::Value* GemmChainEmitter::multiply_add(llvm::Value* x, llvm::Value* y, llvm::Value* sum_so_far) {
  if (spec_.kind == TileKind::bf16_pairs) {
    llvm::Type* halves = widened(b_.getBFloatTy(), 2 * lanes_);
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {},
                              {sum_so_far, b_.CreateBitCast(x, halves), b_.CreateBitCast(y, halves)});
  }
  if (!is_integer()) return b_.CreateIntrinsic(llvm::Intrinsic::fma, {vector_}, {x, y, sum_so_far});
  if (spec_.kind == TileKind::int8_quads) return dot_units(x, y, sum_so_far);
  if (target_ >= CpuTarget::avx512vnni)
    return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpdpwssd_512, {}, {sum_so_far, x, y});
  return b_.CreateAdd(pair_sums(x, y), sum_so_far);
}

// Register j of a row of B, as it is stored.
llvm::Value* GemmChainEmitter::load_row(llvm::Value* b, unsigned j) {
  const int64_t size = itemsize(spec_.b_storage);
  return b_.CreateAlignedLoad(widened(storage_type(b_.getContext(), spec_.b_storage), lanes_),
                              moved(b, int64_t{j} * lanes_ * size), llvm::Align(static_cast<uint64_t>(size)));
}

GemmChainEmitter::Columns GemmChainEmitter::columns_of(llvm::Value* b) {
  Columns columns;
  for (unsigned j = 0; j < vectors_; ++j) columns.push_back(widen_storage(b_, load_row(b, j), spec_.b_storage));
  return columns;
}

// Items from two rows of bf16; without an odd row its elements are +0.0.
GemmChainEmitter::Columns GemmChainEmitter::pair_columns(llvm::Value* even, llvm::Value* odd) {
  llvm::Type* words = widened(b_.getInt32Ty(), lanes_);
  Columns columns;
  for (unsigned j = 0; j < vectors_; ++j) {
    llvm::Value* pair = b_.CreateZExt(load_row(even, j), words);
    if (odd) pair = b_.CreateOr(pair, b_.CreateShl(b_.CreateZExt(load_row(odd, j), words), 16));
    columns.push_back(pair);
  }
  return columns;
}

// All multiply-adds of one item: `a` is a row of packed A.
void GemmChainEmitter::step(llvm::Value* a, const Columns& columns, Step which) {
  for (unsigned i = 0; i < rows_; ++i) {
    llvm::Value* x = splat(b_, b_.CreateLoad(item_, moved(a, int64_t{i} * item_bytes(spec_.kind))), lanes_);
    for (unsigned j = 0; j < vectors_; ++j) {
      llvm::Value* slot = accumulators_[i * vectors_ + j];
      b_.CreateStore(which == Step::first ? multiply(x, columns[j]) : multiply_add(x, columns[j], get(slot)), slot);
    }
  }
}

// Some items, one after another.
void GemmChainEmitter::steps(unsigned count, Step which) {
  llvm::Value *a = get(a_slot_), *b = get(b_slot_);
  for (unsigned u = 0; u < count; ++u) {
    prefetch(b);
    step(a, columns_of(b), which);
    a = moved(a, int64_t{rows_} * item_bytes(spec_.kind));
    b = moved(b, b_stride_bytes_);
  }
  b_.CreateStore(a, a_slot_);
  b_.CreateStore(b, b_slot_);
}

// Some pairs of rows of bf16.
void GemmChainEmitter::pairs_in_place(unsigned count) {
  llvm::Value *a = get(a_slot_), *b = get(b_slot_);
  const int64_t row = int64_t{rows_} * item_bytes(spec_.kind);
  for (unsigned u = 0; u < count; ++u) {
    llvm::Value* odd = moved(b, b_stride_bytes_);
    prefetch(b);
    prefetch(odd);
    if (spec_.kind == TileKind::bf16_pairs) {
      step(a, pair_columns(b, odd), Step::next);
      a = moved(a, row);
    } else {
      step(a, columns_of(odd), Step::next);
      step(moved(a, row), columns_of(b), Step::next);
      a = moved(a, 2 * row);
    }
    b = moved(odd, b_stride_bytes_);
  }
  b_.CreateStore(a, a_slot_);
  b_.CreateStore(b, b_slot_);
}

// The last row of an odd leaf: the even one of a pair whose other products are -0.0.
void GemmChainEmitter::last_in_place() {
  llvm::Value *a = get(a_slot_), *b = get(b_slot_);
  step(a, spec_.kind == TileKind::bf16_pairs ? pair_columns(b, nullptr) : columns_of(b), Step::next);
  b_.CreateStore(moved(a, int64_t{rows_} * item_bytes(spec_.kind)), a_slot_);
  b_.CreateStore(moved(b, b_stride_bytes_), b_slot_);
}

void GemmChainEmitter::turns(const char* name, llvm::Value* count, unsigned unroll,
                             const std::function<void(unsigned)>& body) {
  b_.CreateStore(count, counter_);
  count_down(name, counter_, [&] { body(unroll); });
}

void GemmChainEmitter::run_items(llvm::Value* length) {
  const unsigned unroll = unroll_of(spec_);
  llvm::Value* items = spec_.kind == TileKind::bf16_pairs
                           ? b_.CreateLShr(b_.CreateAdd(length, b_.getInt64(1), "", true, true), 1)
                           : length;
  steps(1, Step::first);
  llvm::Value* rest = b_.CreateSub(items, b_.getInt64(1), "", true, true);
  turns("k_unrolled", b_.CreateUDiv(rest, b_.getInt64(unroll)), unroll,
        [&](unsigned count) { steps(count, Step::next); });
  turns("k_rest", b_.CreateURem(rest, b_.getInt64(unroll)), 1, [&](unsigned count) { steps(count, Step::next); });
}

void GemmChainEmitter::run_in_place_pairs(llvm::Value* length) {
  const unsigned unroll = unroll_of(spec_) / 2;
  for_tile([&](unsigned, unsigned, llvm::Value* slot) { b_.CreateStore(zero(), slot); });
  llvm::Value* pairs = b_.CreateLShr(length, 1);
  turns("k_unrolled", b_.CreateUDiv(pairs, b_.getInt64(unroll)), unroll,
        [&](unsigned count) { pairs_in_place(count); });
  turns("k_rest", b_.CreateURem(pairs, b_.getInt64(unroll)), 1, [&](unsigned count) { pairs_in_place(count); });
  turns("k_last", b_.CreateAnd(length, b_.getInt64(1)), 1, [&](unsigned) { last_in_place(); });
}

void GemmChainEmitter::run(llvm::Value* length) {
  llvm::BasicBlock *empty = block("empty"), *chain = block("chain"), *end = block("end_of_leaf");
  b_.CreateCondBr(b_.CreateICmpEQ(length, b_.getInt64(0)), empty, chain);
  b_.SetInsertPoint(empty);
  for_tile([&](unsigned, unsigned, llvm::Value* slot) { b_.CreateStore(zero(), slot); });
  b_.CreateBr(end);
  b_.SetInsertPoint(chain);
  if (takes_pairs(spec_.kind) && is_in_place()) run_in_place_pairs(length);
  else run_items(length);
  b_.CreateBr(end);
  b_.SetInsertPoint(end);
}

// One row of B, a few rows ahead: the processor's own prefetchers lose short rows that lie far apart.
void GemmChainEmitter::prefetch(llvm::Value* b) {
  const int64_t row = int64_t{vectors_} * lanes_ * itemsize(spec_.b_storage);
  llvm::Value* ahead = moved(b, prefetch_bytes_);
  for (int64_t line = 0; line < row; line += 64) {
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {ahead->getType()},
                       {moved(ahead, line), b_.getInt32(0), b_.getInt32(3), b_.getInt32(1)});
  }
}

}  // namespace tutti::codegen
