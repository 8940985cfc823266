// Every loop walks registers of columns; expressions are those of the recipes of the ops, node for node.
#include "tutti/codegen/llvm/emit_attention.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/kernel.h"
#include "tutti/codegen/llvm/machine_code.h"
#include "tutti/codegen/llvm/math.h"
#include "tutti/codegen/llvm/scalar_ops.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {
namespace {

using llvm::Value;

constexpr unsigned kUnroll = 4;      // rows, so that a chain over them does not wait for itself
constexpr unsigned kLeafLanes = 16;  // of a sum over keys: lane j takes keys j, j + 16, ... of the block (N3)

class AttentionEmitter {
 public:
  AttentionEmitter(llvm::Module& module, const AttentionKernelSpec& spec, CpuTarget target)
      : spec_(spec),
        target_(target),
        lanes_(static_cast<unsigned>(gemm_lanes(target, spec.compute))),
        module_(module),
        b_(module.getContext()),
        element_(register_type(module.getContext(), spec.compute)),
        vector_(widened(element_, lanes_)),
        index_(widened(b_.getInt32Ty(), lanes_)) {}

  void emit(const std::string& name);

 private:
  void softmax();
  void combine();
  void finish();
  void gradient();

  Value* field(size_t offset, llvm::Type* type) {
    return b_.CreateLoad(type, b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), call_, offset));
  }
  Value* pointer(size_t offset) { return field(offset, b_.getPtrTy()); }
  Value* word(size_t offset) { return field(offset, b_.getInt64Ty()); }
  Value* at(Value* base, Value* index) { return b_.CreateGEP(element_, base, index); }
  Value* load(Value* base, Value* index) { return b_.CreateAlignedLoad(vector_, at(base, index), align()); }
  void store(Value* value, Value* base, Value* index) { b_.CreateAlignedStore(value, at(base, index), align()); }
  Value* load_keys(Value* base, Value* index) {
    return b_.CreateAlignedLoad(index_, b_.CreateGEP(b_.getInt32Ty(), base, index), llvm::Align(4));
  }
  llvm::Align align() const { return llvm::Align(static_cast<uint64_t>(itemsize(spec_.compute))); }
  Value* number(double x) { return llvm::ConstantFP::get(vector_, x); }
  Value* hidden() { return llvm::ConstantFP::getInfinity(vector_, true); }
  Value* is_hidden(Value* x) { return b_.CreateFCmpOEQ(x, hidden()); }
  Value* exponential(Value* x) { return emit_transcendental(b_, ScalarOp::exp, {x}); }
  Value* hyperbolic_tangent(Value* x) { return emit_transcendental(b_, ScalarOp::tanh, {x}); }
  Value* spread(Value* scalar) { return splat(b_, scalar, lanes_); }
  Value* number_at(size_t offset) { return spread(b_.CreateFPCast(field(offset, b_.getDoubleTy()), element_)); }
  Value* scale() { return number_at(offsetof(AttentionCall, scale)); }
  Value* score_cap() { return spec_.capped ? number_at(offsetof(AttentionCall, score_cap)) : nullptr; }
  Value* key_at(Value* index) { return b_.CreateTrunc(b_.CreateAdd(first_key_, index), b_.getInt32Ty()); }
  Value* between(Value* key, Value* first, Value* last) {
    return b_.CreateAnd(b_.CreateICmpSGE(key, first), b_.CreateICmpSLE(key, last));
  }
  // A stack slot; scalar replacement turns those of one vector into registers.
  llvm::AllocaInst* slot(Value* initial) {
    llvm::BasicBlock& entry = function_->getEntryBlock();
    llvm::IRBuilder<> at_entry(&entry, entry.begin());
    llvm::AllocaInst* memory = at_entry.CreateAlloca(initial->getType());
    b_.CreateStore(initial, memory);
    return memory;
  }
  Value* get(llvm::AllocaInst* memory) { return b_.CreateLoad(memory->getAllocatedType(), memory); }

  // for (i = 0; i < end; i += step) body(i)
  void for_loop(const char* name, Value* end, int64_t step, const std::function<void(Value*)>& body);
  void for_columns(const std::function<void(Value*)>& body) {
    for_loop("columns", word(offsetof(AttentionCall, columns)), lanes_, body);
  }
  // Each row of the tile: its number and offset, and its place in its turn of kUnroll rows, which are computed side by
  // side.
  void for_rows(const std::function<void(Value* row, Value* offset, unsigned turn)>& body);

  const AttentionKernelSpec& spec_;
  const CpuTarget target_;
  const unsigned lanes_;
  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  llvm::Type *element_, *vector_, *index_;
  llvm::Function* function_ = nullptr;
  Value *call_ = nullptr, *first_key_ = nullptr;
};

void AttentionEmitter::for_loop(const char* name, Value* end, int64_t step, const std::function<void(Value*)>& body) {
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* loop = llvm::BasicBlock::Create(module_.getContext(), name, function_);
  auto* after = llvm::BasicBlock::Create(module_.getContext(), "after", function_);
  b_.CreateCondBr(b_.CreateICmpSGT(end, b_.getInt64(0)), loop, after);
  b_.SetInsertPoint(loop);
  llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
  i->addIncoming(b_.getInt64(0), before);
  body(i);
  Value* next = b_.CreateNSWAdd(i, b_.getInt64(static_cast<uint64_t>(step)));
  i->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpSLT(next, end), loop, after);
  b_.SetInsertPoint(after);
}

void AttentionEmitter::for_rows(const std::function<void(Value*, Value*, unsigned)>& body) {
  Value *stride = word(offsetof(AttentionCall, stride)), *rows = word(offsetof(AttentionCall, rows));
  Value* whole = b_.CreateAnd(rows, b_.getInt64(~uint64_t{kUnroll - 1}));
  const auto emit = [&](Value* row, unsigned turn) { body(row, b_.CreateMul(row, stride), turn); };
  for_loop("rows", whole, kUnroll, [&](Value* first) {
    for (unsigned turn = 0; turn < kUnroll; ++turn) emit(b_.CreateAdd(first, b_.getInt64(turn)), turn);
  });
  for_loop("rest", b_.CreateSub(rows, whole), 1, [&](Value* i) { emit(b_.CreateAdd(whole, i), 0); });
}

// x = s scale, or cap tanh(s scale / cap), + bias, -inf where hidden; m = max x; p = exp(x - m); l = sum p by lanes of
// a leaf, folded by halving.
void AttentionEmitter::softmax() {
  Value *tile = pointer(offsetof(AttentionCall, tile)), *factor = scale(), *cap = score_cap();
  Value* bias = spec_.biased ? pointer(offsetof(AttentionCall, bias)) : nullptr;
  auto* sums_type = llvm::ArrayType::get(vector_, kLeafLanes);
  llvm::AllocaInst* sums = slot(llvm::Constant::getNullValue(sums_type));
  const auto sum_place = [&](Value* lane) { return b_.CreateGEP(vector_, sums, lane); };
  for_columns([&](Value* column) {
    Value *first = nullptr, *last = nullptr;
    if (spec_.bounded) {
      first = load_keys(pointer(offsetof(AttentionCall, first)), column);
      last = load_keys(pointer(offsetof(AttentionCall, last)), column);
    }
    llvm::AllocaInst* largest[kUnroll];
    for (llvm::AllocaInst*& part : largest) part = slot(hidden());
    for_rows([&](Value* row, Value* offset, unsigned turn) {
      Value* place = b_.CreateAdd(offset, column);
      Value* x = b_.CreateFMul(load(tile, place), factor);
      if (cap) x = b_.CreateFMul(hyperbolic_tangent(b_.CreateFDiv(x, cap)), cap);
      if (bias) x = b_.CreateFAdd(x, load(bias, place));
      if (spec_.bounded) x = b_.CreateSelect(between(spread(key_at(row)), first, last), x, hidden());
      store(x, tile, place);
      b_.CreateStore(emit_float_extreme(b_, true, get(largest[turn]), x), largest[turn]);
    });
    Value* m = get(largest[0]);
    for (unsigned turn = 1; turn < kUnroll; ++turn) m = emit_float_extreme(b_, true, m, get(largest[turn]));
    store(m, pointer(offsetof(AttentionCall, m)), column);
    // Nothing is seen: all x are -inf too, and exp(-inf - 0) is the wanted 0 instead of NaN.
    Value* origin = b_.CreateSelect(is_hidden(m), number(0.0), m);
    for (unsigned lane = 0; lane < kLeafLanes; ++lane) b_.CreateStore(number(0.0), sum_place(b_.getInt64(lane)));
    for_rows([&](Value* row, Value* offset, unsigned) {
      Value* place = b_.CreateAdd(offset, column);
      Value* p = exponential(b_.CreateFSub(load(tile, place), origin));
      store(p, tile, place);
      Value* sum = sum_place(b_.CreateAnd(row, b_.getInt64(kLeafLanes - 1)));
      b_.CreateStore(b_.CreateFAdd(b_.CreateLoad(vector_, sum), p), sum);
    });
    std::vector<Value*> folded;
    for (unsigned lane = 0; lane < kLeafLanes; ++lane)
      folded.push_back(b_.CreateLoad(vector_, sum_place(b_.getInt64(lane))));
    for (size_t half = kLeafLanes / 2; half > 0; half /= 2)
      for (size_t lane = 0; lane < half; ++lane) folded[lane] = b_.CreateFAdd(folded[lane], folded[lane + half]);
    store(folded[0], pointer(offsetof(AttentionCall, l)), column);
  });
}

// (m, l, o) of neighbouring ranges of keys; an absent side leaves the other as it is.
void AttentionEmitter::combine() {
  Value *o = pointer(offsetof(AttentionCall, tile)), *other = pointer(offsetof(AttentionCall, other));
  Value *m = pointer(offsetof(AttentionCall, m)), *other_m = pointer(offsetof(AttentionCall, other_m));
  Value *l = pointer(offsetof(AttentionCall, l)), *other_l = pointer(offsetof(AttentionCall, other_l));
  for_columns([&](Value* column) {
    Value *ma = load(m, column), *mb = load(other_m, column);
    Value* both = emit_float_extreme(b_, true, ma, mb);
    Value *scale_a = exponential(b_.CreateFSub(ma, both)), *scale_b = exponential(b_.CreateFSub(mb, both));
    Value *no_a = is_hidden(ma), *no_b = is_hidden(mb);
    const auto join = [&](Value* a, Value* base, Value* place) {
      Value *xa = load(a, place), *xb = load(base, place);
      Value* sum = b_.CreateIntrinsic(llvm::Intrinsic::fma, {vector_}, {xa, scale_a, b_.CreateFMul(xb, scale_b)});
      store(b_.CreateSelect(no_a, xb, b_.CreateSelect(no_b, xa, sum)), a, place);
    };
    join(l, other_l, column);
    for_rows([&](Value*, Value* offset, unsigned) { join(o, other, b_.CreateAdd(offset, column)); });
    store(both, m, column);
  });
}

// o / l, zero where nothing was seen; m + log l. Zeros lose their sign: it would tell of keys that are hidden.
void AttentionEmitter::finish() {
  Value *o = pointer(offsetof(AttentionCall, tile)), *m = pointer(offsetof(AttentionCall, m)),
        *l = pointer(offsetof(AttentionCall, l));
  for_columns([&](Value* column) {
    Value* sum = load(l, column);
    Value* empty = b_.CreateFCmpOEQ(sum, number(0.0));
    for_rows([&](Value*, Value* offset, unsigned) {
      Value* place = b_.CreateAdd(offset, column);
      Value* x = b_.CreateFAdd(b_.CreateFDiv(load(o, place), sum), number(0.0));
      store(b_.CreateSelect(empty, number(0.0), x), o, place);
    });
    store(b_.CreateFAdd(load(m, column), emit_transcendental(b_, ScalarOp::log, {sum})), m, column);
  });
}

// p = exp(s scale + bias - lse), ds = p (dp - delta) scale; zero where hidden. With a cap the score is cap t + bias for
// t = tanh(s scale / cap), and ds has the slope 1 - t^2 as a further factor.
void AttentionEmitter::gradient() {
  Value *tile = pointer(offsetof(AttentionCall, tile)), *other = pointer(offsetof(AttentionCall, other)),
        *factor = scale(), *cap = score_cap();
  Value* bias = spec_.biased ? pointer(offsetof(AttentionCall, bias)) : nullptr;
  const auto per_row = [&](size_t offset, llvm::Type* type, Value* row) {
    return spread(b_.CreateLoad(type, b_.CreateGEP(type, pointer(offset), row)));
  };
  Value *steps = b_.CreateStepVector(index_), *stride = word(offsetof(AttentionCall, stride));
  for_loop("rows", word(offsetof(AttentionCall, rows)), 1, [&](Value* row) {
    Value* offset = b_.CreateMul(row, stride);
    Value *lse = per_row(offsetof(AttentionCall, lse), element_, row),
          *delta = per_row(offsetof(AttentionCall, delta), element_, row);
    Value *first = nullptr, *last = nullptr;
    if (spec_.bounded) {
      first = per_row(offsetof(AttentionCall, first), b_.getInt32Ty(), row);
      last = per_row(offsetof(AttentionCall, last), b_.getInt32Ty(), row);
    }
    for_columns([&](Value* column) {
      Value* place = b_.CreateAdd(offset, column);
      Value *x = b_.CreateFMul(load(tile, place), factor), *tangent = nullptr;
      if (cap) {
        tangent = hyperbolic_tangent(b_.CreateFDiv(x, cap));
        x = b_.CreateFMul(tangent, cap);
      }
      Value* seen = nullptr;
      if (spec_.bounded) seen = between(b_.CreateAdd(spread(key_at(column)), steps), first, last);
      if (bias) {
        Value* added = load(bias, place);
        x = b_.CreateFAdd(x, added);
        Value* shown = b_.CreateFCmpUNE(added, hidden());
        seen = seen ? b_.CreateAnd(seen, shown) : shown;
      }
      Value* p = exponential(b_.CreateFSub(x, lse));
      Value* ds = b_.CreateFMul(p, b_.CreateFSub(load(other, place), delta));
      if (tangent) {
        Value* slope =
            b_.CreateIntrinsic(llvm::Intrinsic::fma, {vector_}, {b_.CreateFNeg(tangent), tangent, number(1.0)});
        ds = b_.CreateFMul(ds, slope);
      }
      ds = b_.CreateFMul(ds, factor);
      if (seen) {
        p = b_.CreateSelect(seen, p, number(0.0));
        ds = b_.CreateSelect(seen, ds, number(0.0));
      }
      store(p, tile, place);
      store(ds, other, place);
    });
  });
}

void AttentionEmitter::emit(const std::string& name) {
  function_ = llvm::Function::Create(llvm::FunctionType::get(b_.getVoidTy(), {b_.getPtrTy()}, false),
                                     llvm::Function::ExternalLinkage, name, module_);
  make_for(*function_, target_);
  call_ = function_->getArg(0);
  b_.SetInsertPoint(llvm::BasicBlock::Create(module_.getContext(), "entry", function_));
  first_key_ = word(offsetof(AttentionCall, first_key));
  switch (spec_.step) {
    case AttentionStep::softmax:
      softmax();
      break;
    case AttentionStep::combine:
      combine();
      break;
    case AttentionStep::finish:
      finish();
      break;
    case AttentionStep::gradient:
      gradient();
      break;
  }
  b_.CreateRetVoid();
}

}  // namespace

void emit_attention(llvm::Module& module, const AttentionKernelSpec& spec, CpuTarget target, const std::string& name) {
  AttentionEmitter(module, spec, target).emit(name);
}

}  // namespace tutti::codegen
