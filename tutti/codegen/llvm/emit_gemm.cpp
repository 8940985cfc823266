// for each leaf:  acc[i][j] = a[0][i] * b[0][j];  for the other k of the leaf:  acc[i][j] = fma(a[k][i], b[k][j], acc[i][j])
//                 or, without any k, acc = -0.0 (integers: 0)
//                 as often as the tree says:  acc = newest pending tile + acc
//                 push acc, or write it to C after the last leaf
// The first product is what a chain from -0.0 has after one step (integers: from 0). A leaf of 16 k takes 8 to 10 % less time than with accumulators that are set first.
// Accumulators are stack slots here; scalar replacement turns them into registers.
#include "tutti/codegen/llvm/emit_gemm.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "tutti/codegen/llvm/convert.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {
namespace {

// Enough k per turn that loop overhead vanishes beside rows * vectors multiply-adds.
unsigned unroll_of(const GemmKernelSpec& spec) {
  const int32_t work = spec.rows * spec.vectors;
  return work >= 16 ? 4 : 8;
}

constexpr int64_t kPrefetchRows = 8;

class TileEmitter {
 public:
  TileEmitter(llvm::Module& module, const GemmKernelSpec& spec, CpuTarget target)
      : spec_(spec),
        lanes_(static_cast<unsigned>(gemm_lanes(target, spec.compute))),
        rows_(static_cast<unsigned>(spec.rows)),
        vectors_(static_cast<unsigned>(spec.vectors)),
        module_(module),
        b_(module.getContext()),
        element_(register_type(module.getContext(), spec.compute)),
        vector_(widened(element_, lanes_)) {}

  void emit(const std::string& name);

 private:
  llvm::Value* field(size_t offset, llvm::Type* type) {
    return b_.CreateLoad(type, b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), call_, offset));
  }
  llvm::Value* bytes(llvm::Value* elements, int64_t size) {
    return b_.CreateMul(elements, b_.getInt64(static_cast<uint64_t>(size)), "", true, true);
  }
  llvm::Value* moved(llvm::Value* pointer, llvm::Value* distance) {
    return b_.CreateInBoundsGEP(b_.getInt8Ty(), pointer, distance);
  }
  llvm::Value* moved(llvm::Value* pointer, int64_t distance) {
    return moved(pointer, b_.getInt64(static_cast<uint64_t>(distance)));
  }
  llvm::BasicBlock* block(const char* name) { return llvm::BasicBlock::Create(module_.getContext(), name, function_); }
  llvm::Value* get(llvm::Value* slot) {
    return b_.CreateLoad(llvm::cast<llvm::AllocaInst>(slot)->getAllocatedType(), slot);
  }

  // while (counter slot > 0) { body; --counter }
  void count_down(const char* name, llvm::Value* counter, const std::function<void()>& body);
  void for_tile(const std::function<void(unsigned i, unsigned j, llvm::Value* slot)>& body) {
    for (unsigned i = 0; i < rows_; ++i)
      for (unsigned j = 0; j < vectors_; ++j) body(i, j, accumulators_[i * vectors_ + j]);
  }
  llvm::Value* zero() const;
  llvm::Value* sum(llvm::Value* left, llvm::Value* right);
  llvm::Value* multiply(llvm::Value* x, llvm::Value* y);
  llvm::Value* multiply_add(llvm::Value* x, llvm::Value* y, llvm::Value* sum_so_far);
  enum class Step { first, next };  // of a leaf
  void step(llvm::Value* a, llvm::Value* b, Step which);
  void steps(unsigned count, Step which);
  void prefetch(llvm::Value* b);
  void k_loop(llvm::Value* length);
  void merge();
  void store_tile(llvm::Value* base, llvm::Value* row_bytes);

  bool is_integer() const { return spec_.compute == DType::i32; }
  int64_t item() const { return itemsize(spec_.compute); }
  int64_t tile_bytes() const { return int64_t{rows_} * vectors_ * lanes_ * item(); }

  const GemmKernelSpec& spec_;
  const unsigned lanes_, rows_, vectors_;
  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  llvm::Type* element_;
  llvm::Type* vector_;
  llvm::Function* function_ = nullptr;
  llvm::Value* call_ = nullptr;
  llvm::Value *a_slot_ = nullptr, *b_slot_ = nullptr, *stack_slot_ = nullptr, *counter_ = nullptr;
  llvm::Value *b_stride_bytes_ = nullptr, *prefetch_bytes_ = nullptr;
  std::vector<llvm::Value*> accumulators_;
};

void TileEmitter::count_down(const char* name, llvm::Value* counter, const std::function<void()>& body) {
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

llvm::Value* TileEmitter::zero() const {
  return is_integer() ? llvm::Constant::getNullValue(vector_) : llvm::ConstantFP::getNegativeZero(vector_);
}

llvm::Value* TileEmitter::sum(llvm::Value* left, llvm::Value* right) {
  return is_integer() ? b_.CreateAdd(left, right) : b_.CreateFAdd(left, right);
}

// Integers: the sum of the products of the two halves of each lane.
llvm::Value* TileEmitter::multiply(llvm::Value* x, llvm::Value* y) {
  if (!is_integer()) return b_.CreateFMul(x, y);
  llvm::Type* halves = widened(b_.getInt16Ty(), 2 * lanes_);
  const auto madd = lanes_ == 16 ? llvm::Intrinsic::x86_avx512_pmaddw_d_512 : llvm::Intrinsic::x86_avx2_pmadd_wd;
  return b_.CreateIntrinsic(madd, {}, {b_.CreateBitCast(x, halves), b_.CreateBitCast(y, halves)});
}

llvm::Value* TileEmitter::multiply_add(llvm::Value* x, llvm::Value* y, llvm::Value* sum_so_far) {
  if (!is_integer()) return b_.CreateIntrinsic(llvm::Intrinsic::fma, {vector_}, {x, y, sum_so_far});
  return b_.CreateAdd(multiply(x, y), sum_so_far);
}

// All multiply-adds of one k: `a` is a row of packed A, `b` a row of B.
void TileEmitter::step(llvm::Value* a, llvm::Value* b, Step which) {
  llvm::Type* stored = widened(storage_type(module_.getContext(), spec_.b_storage), lanes_);
  std::vector<llvm::Value*> columns;
  for (unsigned j = 0; j < vectors_; ++j) {
    const int64_t size = itemsize(spec_.b_storage);
    llvm::Value* raw =
        b_.CreateAlignedLoad(stored, moved(b, int64_t{j} * lanes_ * size), llvm::Align(static_cast<uint64_t>(size)));
    columns.push_back(widen_storage(b_, raw, spec_.b_storage));
  }
  for (unsigned i = 0; i < rows_; ++i) {
    llvm::Value* x = splat(b_, b_.CreateLoad(element_, moved(a, int64_t{i} * item())), lanes_);
    for (unsigned j = 0; j < vectors_; ++j) {
      llvm::Value* slot = accumulators_[i * vectors_ + j];
      b_.CreateStore(which == Step::first ? multiply(x, columns[j]) : multiply_add(x, columns[j], get(slot)), slot);
    }
  }
}

// Some k, one after another.
void TileEmitter::steps(unsigned count, Step which) {
  llvm::Value *a = get(a_slot_), *b = get(b_slot_);
  for (unsigned u = 0; u < count; ++u) {
    prefetch(b);
    step(a, b, which);
    a = moved(a, int64_t{rows_} * item());
    b = moved(b, b_stride_bytes_);
  }
  b_.CreateStore(a, a_slot_);
  b_.CreateStore(b, b_slot_);
}

void TileEmitter::k_loop(llvm::Value* length) {
  const unsigned unroll = unroll_of(spec_);
  const auto run = [&](const char* name, llvm::Value* turns, unsigned count) {
    b_.CreateStore(turns, counter_);
    count_down(name, counter_, [&] { steps(count, Step::next); });
  };
  llvm::BasicBlock *empty = block("empty"), *chain = block("chain"), *end = block("end_of_leaf");
  b_.CreateCondBr(b_.CreateICmpEQ(length, b_.getInt64(0)), empty, chain);
  b_.SetInsertPoint(empty);
  for_tile([&](unsigned, unsigned, llvm::Value* slot) { b_.CreateStore(zero(), slot); });
  b_.CreateBr(end);
  b_.SetInsertPoint(chain);
  steps(1, Step::first);
  llvm::Value* rest = b_.CreateSub(length, b_.getInt64(1), "", true, true);
  run("k_unrolled", b_.CreateUDiv(rest, b_.getInt64(unroll)), unroll);
  run("k_rest", b_.CreateURem(rest, b_.getInt64(unroll)), 1);
  b_.CreateBr(end);
  b_.SetInsertPoint(end);
}

// One row of B, a few rows ahead: the processor's own prefetchers lose short rows that lie far apart.
void TileEmitter::prefetch(llvm::Value* b) {
  const int64_t row = int64_t{vectors_} * lanes_ * itemsize(spec_.b_storage);
  llvm::Value* ahead = moved(b, prefetch_bytes_);
  for (int64_t line = 0; line < row; line += 64) {
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {ahead->getType()},
                       {moved(ahead, line), b_.getInt32(0), b_.getInt32(3), b_.getInt32(1)});
  }
}

// acc = newest pending tile + acc, and the pending tile is gone.
void TileEmitter::merge() {
  llvm::Value* pending = moved(get(stack_slot_), -tile_bytes());
  b_.CreateStore(pending, stack_slot_);
  for_tile([&](unsigned i, unsigned j, llvm::Value* slot) {
    const int64_t place = int64_t{i * vectors_ + j} * lanes_ * item();
    llvm::Value* left =
        b_.CreateAlignedLoad(vector_, moved(pending, place), llvm::Align(static_cast<uint64_t>(item())));
    b_.CreateStore(sum(left, get(slot)), slot);
  });
}

void TileEmitter::store_tile(llvm::Value* base, llvm::Value* row_bytes) {
  llvm::Value* row = base;
  for_tile([&](unsigned i, unsigned j, llvm::Value* slot) {
    if (j == 0 && i > 0) row = moved(row, row_bytes);
    b_.CreateAlignedStore(get(slot), moved(row, int64_t{j} * lanes_ * item()),
                          llvm::Align(static_cast<uint64_t>(item())));
  });
}

void TileEmitter::emit(const std::string& name) {
  llvm::LLVMContext& context = module_.getContext();
  llvm::Type *pointer = b_.getPtrTy(), *i64 = b_.getInt64Ty();
  function_ = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), {pointer}, false),
                                     llvm::Function::ExternalLinkage, name, module_);
  function_->addFnAttr("no-builtins");
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  function_->addFnAttr("prefer-vector-width", lanes_ * item() == 64 ? "512" : "256");
  call_ = function_->getArg(0);
  b_.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", function_));
  for (unsigned i = 0; i < rows_ * vectors_; ++i) accumulators_.push_back(b_.CreateAlloca(vector_));
  a_slot_ = b_.CreateAlloca(pointer);
  b_slot_ = b_.CreateAlloca(pointer);
  stack_slot_ = b_.CreateAlloca(pointer);
  counter_ = b_.CreateAlloca(i64);
  llvm::Value *leaf_slot = b_.CreateAlloca(i64), *merges_left = b_.CreateAlloca(i64);

  b_.CreateStore(field(offsetof(GemmTileCall, a), pointer), a_slot_);
  b_.CreateStore(field(offsetof(GemmTileCall, b), pointer), b_slot_);
  b_.CreateStore(field(offsetof(GemmTileCall, stack), pointer), stack_slot_);
  llvm::Value* b_stride = field(offsetof(GemmTileCall, b_stride), i64);
  b_stride_bytes_ = bytes(b_stride, itemsize(spec_.b_storage));
  prefetch_bytes_ = bytes(b_stride_bytes_, kPrefetchRows);
  llvm::Value* lengths = field(offsetof(GemmTileCall, leaf_lengths), pointer);
  llvm::Value* merges = field(offsetof(GemmTileCall, merges), pointer);
  llvm::Value* leaves = field(offsetof(GemmTileCall, leaves), i64);
  llvm::Value* is_last = b_.CreateICmpNE(field(offsetof(GemmTileCall, is_last), i64), b_.getInt64(0));
  b_.CreateStore(b_.getInt64(0), leaf_slot);

  llvm::BasicBlock *leaf_block = block("leaf"), *push = block("push"), *write = block("write"), *end = block("end");
  b_.CreateBr(leaf_block);
  b_.SetInsertPoint(leaf_block);
  llvm::Value* leaf = get(leaf_slot);
  k_loop(b_.CreateZExt(b_.CreateLoad(b_.getInt32Ty(), b_.CreateInBoundsGEP(b_.getInt32Ty(), lengths, leaf)), i64));
  b_.CreateStore(b_.CreateZExt(b_.CreateLoad(b_.getInt8Ty(), moved(merges, leaf)), i64), merges_left);
  count_down("merge", merges_left, [&] { merge(); });
  llvm::Value* next = b_.CreateAdd(leaf, b_.getInt64(1), "", true, true);
  b_.CreateStore(next, leaf_slot);
  llvm::Value* is_end = b_.CreateICmpEQ(next, leaves);
  b_.CreateCondBr(b_.CreateAnd(is_end, is_last), write, push);

  b_.SetInsertPoint(push);
  llvm::Value* top = get(stack_slot_);
  store_tile(top, b_.getInt64(static_cast<uint64_t>(tile_bytes() / rows_)));
  b_.CreateStore(moved(top, tile_bytes()), stack_slot_);
  b_.CreateCondBr(is_end, end, leaf_block);

  b_.SetInsertPoint(write);
  store_tile(field(offsetof(GemmTileCall, c), pointer), bytes(field(offsetof(GemmTileCall, c_stride), i64), item()));
  b_.CreateBr(end);
  b_.SetInsertPoint(end);
  b_.CreateRetVoid();
}

}  // namespace

void emit_gemm_tile(llvm::Module& module, const GemmKernelSpec& spec, CpuTarget target, const std::string& name) {
  TileEmitter(module, spec, target).emit(name);
}

}  // namespace tutti::codegen
