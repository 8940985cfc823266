#include <algorithm>
#include <cstddef>

#include "tutti/codegen/llvm/monoid.h"
#include "tutti/codegen/llvm/reduction_tree.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

using llvm::Value;

namespace {

constexpr int64_t kLeafLanes = 16;  // chain j of a leaf takes elements j, j + 16, ... of the reduced dim

// The 16 chains of a leaf, one vector (of columns) each, in a stack array: chains are picked by a run-time index, so
// that the element expression is emitted once.
class Chains {
 public:
  Chains(Emitter& e, const ReductionGroup& group, unsigned lanes) : e_(e), group_(group), lanes_(lanes) {
    for (const Monoid& monoid : group.monoids) {
      arrays_.emplace_back();
      for (llvm::Type* type : monoid.component_types(lanes)) arrays_.back().push_back(e.slot(type, "chains", kLeafLanes));
    }
  }

  void fill_with_identity() {
    e_.for_loop("clear", e_.i64(0), e_.i64(kLeafLanes), e_.i64(1), [&](Value* chain) {
      for (size_t m = 0; m < group_.monoids.size(); ++m) write(m, chain, group_.monoids[m].identity(lanes_));
    });
  }

  Value* read(size_t m, size_t component, Value* chain) const {
    llvm::Type* type = group_.monoids[m].component_types(lanes_)[component];
    return e_.b.CreateLoad(type, e_.b.CreateGEP(type, arrays_[m][component], chain));
  }

  Components read(size_t m, Value* chain) const {
    Components v;
    for (size_t k = 0; k < arrays_[m].size(); ++k) v.push_back(read(m, k, chain));
    return v;
  }

  void write(size_t m, size_t component, Value* chain, Value* v) {
    e_.b.CreateStore(v, e_.b.CreateGEP(v->getType(), arrays_[m][component], chain));
  }

  void write(size_t m, Value* chain, const Components& v) {
    for (size_t k = 0; k < v.size(); ++k) write(m, k, chain, v[k]);
  }

  // Chain j is joined with j + 8, then + 4, ...; chains at or beyond `used` are empty and change nothing.
  void halve(Value* used, const std::function<void(Value* low, Value* high)>& join) {
    for (int64_t half = kLeafLanes / 2; half > 0; half /= 2) {
      Value* left = e_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, e_.b.CreateSub(used, e_.i64(half)), e_.i64(half));
      e_.for_loop("halve", e_.i64(0), left, e_.i64(1), [&](Value* j) { join(j, e_.b.CreateAdd(j, e_.i64(half))); });
    }
  }

 private:
  Emitter& e_;
  const ReductionGroup& group_;
  unsigned lanes_;
  std::vector<Components> arrays_;
};

class ColumnKernel {
 public:
  ColumnKernel(Emitter& e, std::string name) : e_(e), b_(e.b), name_(std::move(name)), groups_(group_reductions(e)),
                                               lanes_(choose_lanes()), states_(e, lanes_) {}

  void emit() {
    // Narrow elements have no masked loads on AVX2: whole strips of columns then get code of their own.
    const bool two_versions = !masks_are_cheap();
    for (const bool masked : {false, true}) {
      if (!masked && !two_versions) continue;
      trees_.emplace_back();
      for (size_t g = 0; g < groups_.size(); ++g) {
        const std::string suffix = std::to_string(g) + (masked ? "_partial" : "_whole");
        trees_.back().emplace_back(e_, groups_[g], emit_leaf(groups_[g], masked, "leaf_" + suffix), "tree_" + suffix);
      }
    }
    emit_loops();
  }

 private:
  bool masks_are_cheap() const {
    if (e_.target == CpuTarget::avx512) return true;
    for (size_t k = 0; k < e_.spec.inputs.size(); ++k) {
      if (e_.operand(k).inner != StrideClass::broadcast && itemsize(e_.operand(k).dtype) < 4) return false;
    }
    return true;
  }

  // Two registers a chain: a cache line or more of a row is read at a time.
  unsigned choose_lanes() const {
    std::vector<int32_t> roots = e_.spec.results;
    for (const Reduction& reduction : e_.spec.reductions) {
      roots.push_back(reduction.value);
    }
    return std::min(2 * e_.vector_lanes(roots), 32u);
  }

  Chunk chunk_of(Value* index, Value* count, bool masked) {
    if (!masked) return {index};
    Value* steps = b_.CreateStepVector(widened(b_.getInt32Ty(), lanes_));
    return {index, b_.CreateICmpULT(steps, splat(b_, b_.CreateTrunc(count, b_.getInt32Ty()), lanes_)), count};
  }

  // The frame at element r of the reduced dim.
  Frame frame_at(const Frame& frame, const std::vector<Value*>& reduce_bytes, Value* r) {
    Frame at = frame;
    at.reduce_index = r;
    for (size_t k = 0; k < e_.spec.inputs.size(); ++k)
      at.base[k] = b_.CreateGEP(b_.getInt8Ty(), frame.base[k], b_.CreateMul(r, reduce_bytes[k]));
    return at;
  }

  LeafFunction emit_leaf(const ReductionGroup& group, bool masked, const std::string& name) {
    const LeafFunction leaf = begin_leaf(e_, group, lanes_, name);
    Value *call = leaf.function->getArg(0), *start = leaf.function->getArg(2), *count = leaf.function->getArg(3);
    Chunk place{};
    Frame frame = states_.read_frame(leaf.function->getArg(1), lanes_, group.monoids.front().first_reduction(), &place);
    const Chunk chunk = chunk_of(place.index, place.count, masked);
    std::vector<Value*> reduce_bytes;
    for (size_t k = 0; k < e_.spec.inputs.size(); ++k)
      reduce_bytes.push_back(b_.CreateMul(e_.operand_field(call, k, offsetof(OperandCall, reduce), b_.getInt64Ty()),
                                          e_.i64(itemsize(e_.operand(k).dtype))));
    const std::vector<int32_t> values = group.value_nodes();
    e_.prepare_uniform(frame, values);
    Chains chains(e_, group, lanes_);
    chains.fill_with_identity();

    const auto for_elements = [&](const std::function<void(Value* chain, Value* r, const std::vector<Value*>& x)>& body) {
      e_.for_loop("element", e_.i64(0), count, e_.i64(1), [&](Value* k) {
        Value* r = b_.CreateAdd(start, k);
        Frame at = frame_at(frame, reduce_bytes, r);
        body(b_.CreateAnd(k, e_.i64(kLeafLanes - 1)), r, e_.evaluate(at, values, chunk)[0]);
      });
    };
    for_elements([&](Value* chain, Value* r, const std::vector<Value*>& x) {
      for (size_t m = 0; m < values.size(); ++m) {
        const Monoid& monoid = group.monoids[m];
        if (monoid.is_softmax()) {
          chains.write(m, 0, chain, monoid.combine_max(chains.read(m, 0, chain), x[m]));
        } else {
          const Components element = monoid.lift(x[m], splat(b_, r, lanes_), nullptr);
          chains.write(m, chain, monoid.combine(chains.read(m, chain), element));
        }
      }
    });
    chains.halve(count, [&](Value* low, Value* high) {
      for (size_t m = 0; m < values.size(); ++m) {
        const Monoid& monoid = group.monoids[m];
        if (monoid.is_softmax()) {
          chains.write(m, 0, low, monoid.combine_max(chains.read(m, 0, low), chains.read(m, 0, high)));
        } else {
          chains.write(m, low, monoid.combine(chains.read(m, low), chains.read(m, high)));
        }
      }
    });
    if (std::any_of(group.monoids.begin(), group.monoids.end(), [](const Monoid& m) { return m.is_softmax(); }))
      emit_exponential_pass(group, chains, count, for_elements);
    std::vector<Components> results;
    for (size_t m = 0; m < values.size(); ++m) results.push_back(chains.read(m, e_.i64(0)));
    e_.report_error(call, frame.error);
    end_leaf(e_, leaf, results);
    return leaf;
  }

  // The maximum of the leaf stands in chain 0; l runs over the chains again.
  template <class ForElements>
  void emit_exponential_pass(const ReductionGroup& group, Chains& chains, Value* count, const ForElements& for_elements) {
    std::vector<Value*> maxima;
    for (size_t m = 0; m < group.monoids.size(); ++m) maxima.push_back(chains.read(m, 0, e_.i64(0)));
    for_elements([&](Value* chain, Value*, const std::vector<Value*>& x) {
      for (size_t m = 0; m < group.monoids.size(); ++m) {
        if (group.monoids[m].is_softmax())
          chains.write(m, 1, chain, group.monoids[m].add_exponential(chains.read(m, 1, chain), x[m], maxima[m], nullptr));
      }
    });
    chains.halve(count, [&](Value* low, Value* high) {
      for (size_t m = 0; m < group.monoids.size(); ++m) {
        if (group.monoids[m].is_softmax())
          chains.write(m, 1, low, b_.CreateFAdd(chains.read(m, 1, low), chains.read(m, 1, high)));
      }
    });
  }

  void emit_loops() {
    llvm::Type* word = b_.getInt64Ty();
    llvm::Type* ptr = b_.getPtrTy();
    Frame shared;
    shared.function = e_.begin_function(name_, llvm::FunctionType::get(b_.getVoidTy(), {ptr}, false), true);
    shared.lanes = lanes_;
    Value* call = shared.function->getArg(0);
    shared.error = e_.new_error_slot();
    shared.length = e_.call_field(call, offsetof(KernelCall, n_reduce), word);
    Value* n_inner = e_.call_field(call, offsetof(KernelCall, n_inner), word);
    Value* first_index = e_.call_field(call, offsetof(KernelCall, first_index), word);
    Value* index_outer = e_.call_field(call, offsetof(KernelCall, index_outer), word);
    e_.load_params(call);
    std::vector<Value*> data, outer_bytes;
    for (size_t k = 0; k < e_.operand_count(); ++k) {
      Value* item_bytes = e_.i64(itemsize(e_.operand(k).dtype));
      data.push_back(e_.operand_field(call, k, offsetof(OperandCall, data), ptr));
      outer_bytes.push_back(b_.CreateMul(e_.operand_field(call, k, offsetof(OperandCall, outer), word), item_bytes));
      const bool strided = e_.operand(k).inner == StrideClass::strided;
      shared.inner_bytes.push_back(
          strided ? b_.CreateMul(e_.operand_field(call, k, offsetof(OperandCall, inner), word), item_bytes) : nullptr);
    }
    Value* state = states_.allocate();
    e_.for_loop("outer", e_.i64(0), e_.call_field(call, offsetof(KernelCall, n_outer), word), e_.i64(1), [&](Value* o) {
      Frame frame = shared;
      frame.first_index = b_.CreateAdd(first_index, b_.CreateMul(o, index_outer));
      for (size_t k = 0; k < e_.operand_count(); ++k)
        frame.base.push_back(b_.CreateGEP(b_.getInt8Ty(), data[k], b_.CreateMul(o, outer_bytes[k])));
      e_.prepare_uniform(frame, e_.spec.results);
      Value* whole = b_.CreateAnd(n_inner, e_.i64(-static_cast<int64_t>(lanes_)));
      if (trees_.size() == 1) whole = e_.i64(0);
      else strips(call, state, frame, e_.i64(0), whole, n_inner, false);
      strips(call, state, frame, whole, n_inner, n_inner, true);
    });
    e_.report_error(call, shared.error);
    b_.CreateRetVoid();
  }

  void strips(Value* call, Value* state, const Frame& row, Value* begin, Value* end, Value* n_inner, bool masked) {
    e_.for_loop("strip", begin, end, e_.i64(lanes_), [&](Value* i) {
      Value* count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateSub(n_inner, i), e_.i64(lanes_));
      const Chunk chunk = chunk_of(i, count, masked);
      Frame frame = row;
      const Chunk place{i, nullptr, count};
      states_.write_frame(state, frame, &place);
      for (size_t g = 0; g < groups_.size(); ++g) {
        ReductionTree& tree = (masked ? trees_.back() : trees_.front())[g];
        const std::vector<Components> finals = tree.reduce(call, state, frame.length);
        for (size_t m = 0; m < finals.size(); ++m) {
          for (Value* result : groups_[g].monoids[m].results(finals[m])) {
            states_.write_result(state, frame.reduced.size(), result);
            frame.reduced.push_back(result);
          }
        }
      }
      const auto values = e_.evaluate(frame, e_.spec.results, chunk)[0];
      for (size_t k = 0; k < values.size(); ++k) e_.store_elements(frame, e_.spec.inputs.size() + k, chunk, values[k]);
    });
  }

  Emitter& e_;
  llvm::IRBuilder<>& b_;
  std::string name_;
  std::vector<ReductionGroup> groups_;
  unsigned lanes_;
  FrameState states_;
  std::vector<std::vector<ReductionTree>> trees_;  // whole strips (when they differ), then partial ones
};

}  // namespace

void emit_column(Emitter& e, const std::string& name) { ColumnKernel(e, name).emit(); }

}  // namespace tutti::codegen
