// for each leaf:  acc = its chain (emit_gemm_chain.h)
//                 as often as the tree says:  acc = newest pending tile + acc
//                 push acc, or write it to C after the last leaf
//
// Chains of bf16 without dot units read and write denormals as zero, sums of partial results do not. Arithmetic may be
// moved across the instructions that change this mode; so the two stand in functions of their own, and the one that
// changes it has none.
#include "tutti/codegen/llvm/emit_gemm.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <cstddef>
#include <functional>
#include <optional>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/llvm/emit_gemm_chain.h"
#include "tutti/codegen/llvm/machine_code.h"
#include "tutti/runtime/fp_environment.h"

namespace tutti::codegen {
namespace {

// What a tile does with the sums of a leaf, wherever they are.
struct TileParts {
  std::function<void(llvm::Value* length)> chain;   // computes them
  std::function<void(llvm::Value* pending)> merge;  // adds them to what is pending there
  std::function<void(llvm::Value* to, llvm::Value* row_bytes)> store;
};

class TileEmitter {
 public:
  TileEmitter(llvm::Module& module, const GemmKernelSpec& spec, CpuTarget target)
      : module_(module), spec_(spec), target_(target), b_(module.getContext()) {}

  void emit(const std::string& name);

 private:
  llvm::Function* make_function(const std::string& name, llvm::ArrayRef<llvm::Type*> arguments,
                                llvm::GlobalValue::LinkageTypes linkage);
  llvm::Function* make_part(const std::string& name, llvm::ArrayRef<llvm::Type*> arguments);
  llvm::Function* emit_chain();
  llvm::Function* emit_merge();
  TileParts whole();
  TileParts flushed();
  void fetch_for_writing();
  void take_off_excess();
  void walk(const TileParts& parts);

  llvm::Value* field(size_t offset, llvm::Type* type) {
    return b_.CreateLoad(type, b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), call_, offset));
  }
  llvm::Value* moved(llvm::Value* pointer, llvm::Value* distance) {
    return b_.CreateInBoundsGEP(b_.getInt8Ty(), pointer, distance);
  }
  llvm::Value* moved(llvm::Value* pointer, int64_t distance) {
    return moved(pointer, b_.getInt64(static_cast<uint64_t>(distance)));
  }
  llvm::Value* bytes(llvm::Value* elements, int64_t size) {
    return b_.CreateMul(elements, b_.getInt64(static_cast<uint64_t>(size)), "", true, true);
  }
  llvm::Value* sum(llvm::Value* left, llvm::Value* right) {
    return is_integer(spec_.kind) ? b_.CreateAdd(left, right) : b_.CreateFAdd(left, right);
  }
  llvm::Align align() const { return llvm::Align(static_cast<uint64_t>(item_bytes(spec_.kind))); }
  // The bytes of a register of C, and its place in a dense tile.
  int64_t register_bytes() const { return has_wide_registers(target_) ? 64 : 32; }
  int64_t place(unsigned i, unsigned j) const { return (int64_t{i} * spec_.vectors + j) * register_bytes(); }
  int64_t tile_bytes() const { return int64_t{spec_.rows} * spec_.vectors * register_bytes(); }
  llvm::Type* floats() {
    return llvm::FixedVectorType::get(b_.getFloatTy(), static_cast<unsigned>(register_bytes() / 4));
  }

  llvm::Module& module_;
  const GemmKernelSpec& spec_;
  const CpuTarget target_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_ = nullptr;
  llvm::Value* call_ = nullptr;
  std::optional<GemmChainEmitter> chain_;
};

llvm::Function* TileEmitter::make_function(const std::string& name, llvm::ArrayRef<llvm::Type*> arguments,
                                           llvm::GlobalValue::LinkageTypes linkage) {
  auto* function =
      llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), arguments, false), linkage, name, module_);
  make_for(*function, target_);
  b_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", function));
  return function;
}

llvm::Function* TileEmitter::make_part(const std::string& name, llvm::ArrayRef<llvm::Type*> arguments) {
  llvm::Function* part = make_function(name, arguments, llvm::GlobalValue::InternalLinkage);
  part->addFnAttr(llvm::Attribute::NoInline);
  return part;
}

// chain(a, b, distance of rows of b, length, tile): the sums of a leaf, to a dense tile.
llvm::Function* TileEmitter::emit_chain() {
  llvm::Type *pointer = b_.getPtrTy(), *i64 = b_.getInt64Ty();
  llvm::Function* part = make_part("chain", {pointer, pointer, i64, i64, pointer});
  part->addFnAttr("denormal-fp-math", "preserve-sign,preserve-sign");
  GemmChainEmitter chain(b_, part, spec_, target_, part->getArg(0), part->getArg(1), part->getArg(2));
  chain.run(part->getArg(3));
  chain.for_tile([&](unsigned i, unsigned j, llvm::Value* slot) {
    b_.CreateAlignedStore(chain.get(slot), moved(part->getArg(4), place(i, j)), align());
  });
  b_.CreateRetVoid();
  return part;
}

// merge(pending, tile): tile = pending + tile.
llvm::Function* TileEmitter::emit_merge() {
  llvm::Function* part = make_part("merge", {b_.getPtrTy(), b_.getPtrTy()});
  for (int64_t offset = 0; offset < tile_bytes(); offset += register_bytes()) {
    llvm::Value* to = moved(part->getArg(1), offset);
    llvm::Value* left = b_.CreateAlignedLoad(floats(), moved(part->getArg(0), offset), align());
    b_.CreateAlignedStore(sum(left, b_.CreateAlignedLoad(floats(), to, align())), to, align());
  }
  b_.CreateRetVoid();
  return part;
}

// Sums in registers.
TileParts TileEmitter::whole() {
  chain_.emplace(b_, function_, spec_, target_, field(offsetof(GemmTileCall, a), b_.getPtrTy()),
                 field(offsetof(GemmTileCall, b), b_.getPtrTy()),
                 field(offsetof(GemmTileCall, b_stride), b_.getInt64Ty()));
  const auto merge = [this](llvm::Value* pending) {
    chain_->for_tile([&](unsigned i, unsigned j, llvm::Value* slot) {
      llvm::Value* left = b_.CreateAlignedLoad(chain_->vector(), moved(pending, place(i, j)), align());
      b_.CreateStore(sum(left, chain_->get(slot)), slot);
    });
  };
  const auto store = [this](llvm::Value* to, llvm::Value* row_bytes) {
    llvm::Value* row = to;
    chain_->for_tile([&](unsigned i, unsigned j, llvm::Value* slot) {
      if (j == 0 && i > 0) row = moved(row, row_bytes);
      b_.CreateAlignedStore(chain_->get(slot), moved(row, int64_t{j} * register_bytes()), align());
    });
  };
  return {[this](llvm::Value* length) { chain_->run(length); }, merge, store};
}

// Sums in memory, where two functions leave them.
TileParts TileEmitter::flushed() {
  const llvm::IRBuilderBase::InsertPoint entry = b_.saveIP();
  llvm::Function *chain = emit_chain(), *merge = emit_merge();
  b_.restoreIP(entry);
  llvm::Type *pointer = b_.getPtrTy(), *word = b_.getInt32Ty();
  llvm::AllocaInst* tile = b_.CreateAlloca(llvm::ArrayType::get(b_.getInt8Ty(), static_cast<uint64_t>(tile_bytes())));
  tile->setAlignment(llvm::Align(64));
  llvm::Value *a_slot = b_.CreateAlloca(pointer), *b_slot = b_.CreateAlloca(pointer), *usual = b_.CreateAlloca(word),
              *flushing = b_.CreateAlloca(word);
  b_.CreateStore(field(offsetof(GemmTileCall, a), pointer), a_slot);
  b_.CreateStore(field(offsetof(GemmTileCall, b), pointer), b_slot);
  b_.CreateIntrinsic(llvm::Intrinsic::x86_sse_stmxcsr, {}, {usual});
  b_.CreateStore(b_.CreateOr(b_.CreateLoad(word, usual), kFlushDenormals), flushing);
  llvm::Value* b_stride = field(offsetof(GemmTileCall, b_stride), b_.getInt64Ty());
  const auto run = [=, this](llvm::Value* length) {
    llvm::Value *a = b_.CreateLoad(pointer, a_slot), *rows = b_.CreateLoad(pointer, b_slot);
    b_.CreateIntrinsic(llvm::Intrinsic::x86_sse_ldmxcsr, {}, {flushing});
    b_.CreateCall(chain, {a, rows, b_stride, length, tile});
    b_.CreateIntrinsic(llvm::Intrinsic::x86_sse_ldmxcsr, {}, {usual});
    b_.CreateStore(moved(a, bytes(length, int64_t{spec_.rows} * item_bytes(spec_.kind))), a_slot);
    b_.CreateStore(moved(rows, bytes(b_.CreateMul(length, b_stride, "", true, true), itemsize(spec_.b_storage))),
                   b_slot);
  };
  const auto store = [=, this](llvm::Value* to, llvm::Value* row_bytes) {
    llvm::Value* row = to;
    for (unsigned i = 0; i < static_cast<unsigned>(spec_.rows); ++i) {
      if (i > 0) row = moved(row, row_bytes);
      for (unsigned j = 0; j < static_cast<unsigned>(spec_.vectors); ++j)
        b_.CreateAlignedStore(b_.CreateAlignedLoad(floats(), moved(tile, place(i, j)), align()),
                              moved(row, int64_t{j} * register_bytes()), align());
    }
  };
  return {run, [=, this](llvm::Value* pending) { b_.CreateCall(merge, {pending, tile}); }, store};
}

// The lines of C that are written after the chain of the last leaf.
void TileEmitter::fetch_for_writing() {
  llvm::Value* row = field(offsetof(GemmTileCall, c), b_.getPtrTy());
  llvm::Value* row_bytes = bytes(field(offsetof(GemmTileCall, c_stride), b_.getInt64Ty()), item_bytes(spec_.kind));
  for (int32_t i = 0; i < spec_.rows; ++i) {
    if (i > 0) row = moved(row, row_bytes);
    for (int64_t line = 0; line < spec_.vectors * register_bytes(); line += 64) {
      llvm::Value* at = moved(row, line);
      b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {at->getType()},
                         {at, b_.getInt32(1), b_.getInt32(3), b_.getInt32(1)});
    }
  }
}

// Takes it off the sums of int8_quads, which are in registers.
void TileEmitter::take_off_excess() {
  llvm::Value* excess = field(offsetof(GemmTileCall, excess), b_.getPtrTy());
  chain_->for_tile([&](unsigned, unsigned j, llvm::Value* slot) {
    llvm::Value* of_columns =
        b_.CreateAlignedLoad(chain_->vector(), moved(excess, int64_t{j} * register_bytes()), align());
    b_.CreateStore(b_.CreateSub(chain_->get(slot), of_columns), slot);
  });
}

void TileEmitter::walk(const TileParts& parts) {
  llvm::Type *pointer = b_.getPtrTy(), *i64 = b_.getInt64Ty();
  llvm::Value *stack_slot = b_.CreateAlloca(pointer), *leaf_slot = b_.CreateAlloca(i64),
              *merges_slot = b_.CreateAlloca(i64);
  b_.CreateStore(field(offsetof(GemmTileCall, stack), pointer), stack_slot);
  llvm::Value* lengths = field(offsetof(GemmTileCall, leaf_lengths), pointer);
  llvm::Value* merges = field(offsetof(GemmTileCall, merges), pointer);
  llvm::Value* leaves = field(offsetof(GemmTileCall, leaves), i64);
  llvm::Value* is_last = b_.CreateICmpNE(field(offsetof(GemmTileCall, is_last), i64), b_.getInt64(0));
  b_.CreateStore(b_.getInt64(0), leaf_slot);

  const auto block = [&](const char* name) { return llvm::BasicBlock::Create(module_.getContext(), name, function_); };
  llvm::BasicBlock *leaf_block = block("leaf"), *fetch = block("fetch"), *chain = block("chain"),
                   *merge = block("merge"), *merged = block("merged"), *push = block("push"), *write = block("write"),
                   *end = block("end");
  b_.CreateBr(leaf_block);
  b_.SetInsertPoint(leaf_block);
  llvm::Value* leaf = b_.CreateLoad(i64, leaf_slot);
  llvm::Value* is_end = b_.CreateICmpEQ(b_.CreateAdd(leaf, b_.getInt64(1), "", true, true), leaves);
  llvm::Value* writes = b_.CreateAnd(is_end, is_last);
  b_.CreateCondBr(writes, fetch, chain);
  b_.SetInsertPoint(fetch);
  fetch_for_writing();
  b_.CreateBr(chain);
  b_.SetInsertPoint(chain);
  parts.chain(b_.CreateZExt(b_.CreateLoad(b_.getInt32Ty(), b_.CreateInBoundsGEP(b_.getInt32Ty(), lengths, leaf)), i64));
  llvm::Value* merge_count = b_.CreateZExt(b_.CreateLoad(b_.getInt8Ty(), moved(merges, leaf)), i64);
  b_.CreateStore(merge_count, merges_slot);
  b_.CreateCondBr(b_.CreateICmpEQ(merge_count, b_.getInt64(0)), merged, merge);

  b_.SetInsertPoint(merge);
  llvm::Value* pending = moved(b_.CreateLoad(pointer, stack_slot), -tile_bytes());
  b_.CreateStore(pending, stack_slot);
  parts.merge(pending);
  llvm::Value* left = b_.CreateSub(b_.CreateLoad(i64, merges_slot), b_.getInt64(1), "", true, true);
  b_.CreateStore(left, merges_slot);
  b_.CreateCondBr(b_.CreateICmpEQ(left, b_.getInt64(0)), merged, merge);

  b_.SetInsertPoint(merged);
  b_.CreateStore(b_.CreateAdd(leaf, b_.getInt64(1), "", true, true), leaf_slot);
  b_.CreateCondBr(writes, write, push);

  b_.SetInsertPoint(push);
  llvm::Value* top = b_.CreateLoad(pointer, stack_slot);
  parts.store(top, b_.getInt64(static_cast<uint64_t>(tile_bytes() / spec_.rows)));
  b_.CreateStore(moved(top, tile_bytes()), stack_slot);
  b_.CreateCondBr(is_end, end, leaf_block);

  b_.SetInsertPoint(write);
  if (spec_.kind == TileKind::int8_quads) take_off_excess();
  parts.store(field(offsetof(GemmTileCall, c), pointer),
              bytes(field(offsetof(GemmTileCall, c_stride), i64), item_bytes(spec_.kind)));
  b_.CreateBr(end);
  b_.SetInsertPoint(end);
  b_.CreateRetVoid();
}

void TileEmitter::emit(const std::string& name) {
  function_ = make_function(name, {b_.getPtrTy()}, llvm::GlobalValue::ExternalLinkage);
  call_ = function_->getArg(0);
  walk(spec_.kind == TileKind::bf16_chain ? flushed() : whole());
}

}  // namespace

void emit_gemm_tile(llvm::Module& module, const GemmKernelSpec& spec, CpuTarget target, const std::string& name) {
  TileEmitter(module, spec, target).emit(name);
}

}  // namespace tutti::codegen
