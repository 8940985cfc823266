#include <algorithm>
#include <cstddef>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/llvm/column_chains.h"
#include "tutti/codegen/llvm/column_walk.h"
#include "tutti/codegen/llvm/monoid.h"
#include "tutti/codegen/llvm/reduction_tree.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

using llvm::Value;

namespace {

// Gets the first chain of the strip, the chain, the position along the reduced dim, and the values.
using ElementBody = std::function<void(Value* first, Value* chain, Value* r, const std::vector<Value*>& x)>;

class ColumnKernel {
 public:
  ColumnKernel(Emitter& e, std::string name)
      : e_(e),
        b_(e.b),
        name_(std::move(name)),
        groups_(group_reductions(e)),
        lanes_(choose_lanes()),
        states_(e, lanes_, kMostStrips) {
    for (size_t k = 0; k < e.spec.outputs.size(); ++k)
      (e.spec.outputs[k].along_reduced ? along_reduced_ : per_column_).push_back(k);
  }

  void emit() {
    // Narrow elements have no masked loads on AVX2, and masked stores take many cycles on some processors that have no
    // more: whole strips of columns then get code of their own.
    const bool two_versions = !masks_are_cheap();
    for (const bool masked : {false, true}) {
      if (!masked && !two_versions) continue;
      trees_.emplace_back();
      for (size_t g = 0; g < groups_.size(); ++g) {
        const std::string suffix = std::to_string(g) + (masked ? "_partial" : "_whole");
        trees_.back().emplace_back(e_, groups_[g], lanes_, emit_leaf(groups_[g], masked, "leaf_" + suffix),
                                   "tree_" + suffix,
                                   [this](Value* state) { return strips_of(e_, states_.block_count(state), lanes_); });
      }
      if (!along_reduced_.empty())
        elements_.push_back(emit_elements(masked, masked ? "elements_partial" : "elements_whole"));
    }
    emit_loops();
  }

 private:
  bool masks_are_cheap() const {
    if (has_wide_registers(e_.target)) return true;
    if (!along_reduced_.empty()) return false;
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

  llvm::Function* emit_leaf(const ReductionGroup& group, bool masked, const std::string& name) {
    llvm::Function* leaf = begin_leaf(e_, name);
    Value *call = leaf->getArg(0), *state = leaf->getArg(1), *start = leaf->getArg(2), *count = leaf->getArg(3);
    const ColumnBlock block{states_.block_index(state), states_.block_count(state), lanes_, masked};
    ColumnWalk walk(e_, states_, call, state, block, group.value_nodes(), group.monoids.front().first_reduction());
    Value* strips = strips_of(e_, block.count, lanes_);
    Chains chains(e_, group, lanes_);
    chains.fill_with_identity(strips, count);

    const auto for_elements = [&](const ElementBody& body) {
      walk.for_elements(start, count, [&](const ColumnWalk::Element& element) {
        Value* first = b_.CreateMul(element.strip, e_.i64(kChains));
        body(first, b_.CreateAdd(first, b_.CreateAnd(element.k, e_.i64(kChains - 1))), element.r, element.values);
      });
    };
    for_elements([&](Value*, Value* chain, Value* r, const std::vector<Value*>& x) {
      for (size_t m = 0; m < group.monoids.size(); ++m) {
        const Monoid& monoid = group.monoids[m];
        if (monoid.is_softmax()) {
          chains.write(m, 0, chain, monoid.combine_max(chains.read(m, 0, chain), x[m]));
        } else {
          const Components element = monoid.lift(x[m], splat(b_, r, lanes_), nullptr);
          chains.write(m, chain, monoid.combine(chains.read(m, chain), element));
        }
      }
    });
    chains.halve(strips, count, [&](Value* low, Value* high) {
      for (size_t m = 0; m < group.monoids.size(); ++m) {
        const Monoid& monoid = group.monoids[m];
        if (monoid.is_softmax()) {
          chains.write(m, 0, low, monoid.combine_max(chains.read(m, 0, low), chains.read(m, 0, high)));
        } else {
          chains.write(m, low, monoid.combine(chains.read(m, low), chains.read(m, high)));
        }
      }
    });
    if (std::any_of(group.monoids.begin(), group.monoids.end(), [](const Monoid& m) { return m.is_softmax(); }))
      emit_exponential_pass(group, chains, strips, count, for_elements);
    Records records(e_, group, lanes_);
    e_.for_loop("strip", e_.i64(0), strips, e_.i64(1), [&](Value* strip) {
      std::vector<Components> results;
      for (size_t m = 0; m < group.monoids.size(); ++m) {
        const Monoid& monoid = group.monoids[m];
        Value* first = b_.CreateMul(strip, e_.i64(kChains));
        results.push_back(monoid.is_softmax() ? monoid.leaf_result(chains.read(m, 0, first), chains.sums(m, first))
                                              : chains.read(m, first));
      }
      records.write(leaf->getArg(4), strip, results);
    });
    e_.report_error(call, walk.error());
    b_.CreateRetVoid();
    return leaf;
  }

  // The maximum of the leaf stands in chain 0 of its strip; the sums run over the chains again.
  template <class ForElements>
  void emit_exponential_pass(const ReductionGroup& group, Chains& chains, Value* strips, Value* count,
                             const ForElements& for_elements) {
    for_elements([&](Value* first, Value* chain, Value*, const std::vector<Value*>& x) {
      for (size_t m = 0; m < group.monoids.size(); ++m) {
        const Monoid& monoid = group.monoids[m];
        if (monoid.is_softmax())
          chains.write_sums(m, chain,
                            monoid.add_exponential(chains.sums(m, chain), x[m], chains.read(m, 0, first), nullptr));
      }
    });
    chains.halve(strips, count, [&](Value* low, Value* high) {
      for (size_t m = 0; m < group.monoids.size(); ++m) {
        if (group.monoids[m].is_softmax())
          chains.write_sums(m, low, group.monoids[m].add_sums(chains.sums(m, low), chains.sums(m, high)));
      }
    });
  }

  // A function that stores the outputs with an element for each of the reduced dim, from the results of all reductions.
  llvm::Function* emit_elements(bool masked, const std::string& name) {
    llvm::Function* function = begin_leaf(e_, name);
    Value *call = function->getArg(0), *state = function->getArg(1);
    std::vector<int32_t> nodes;
    for (const size_t k : along_reduced_) nodes.push_back(e_.spec.results[k]);
    ColumnWalk walk(e_, states_, call, state, {states_.block_index(state), states_.block_count(state), lanes_, masked},
                    nodes, e_.spec.reductions.size());
    walk.for_elements(function->getArg(2), function->getArg(3), [&](const ColumnWalk::Element& element) {
      for (size_t i = 0; i < along_reduced_.size(); ++i)
        e_.store_elements(element.frame, e_.spec.inputs.size() + along_reduced_[i], element.chunk, element.values[i]);
    });
    e_.report_error(call, walk.error());
    b_.CreateRetVoid();
    return function;
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
      e_.prepare_uniform(frame, per_column_roots());
      Value* whole = b_.CreateAnd(n_inner, e_.i64(-static_cast<int64_t>(lanes_)));
      if (trees_.size() == 1) whole = e_.i64(0);
      else blocks(call, state, frame, e_.i64(0), whole, false);
      blocks(call, state, frame, whole, n_inner, true);
    });
    e_.report_error(call, shared.error);
    b_.CreateRetVoid();
  }

  // Columns [begin, end) in blocks; with `masked` the last strip may be partial.
  void blocks(Value* call, Value* state, const Frame& row, Value* begin, Value* end, bool masked) {
    const int64_t block = kMostStrips * lanes_;
    std::vector<ReductionTree>& trees = masked ? trees_.back() : trees_.front();
    std::vector<Value*> records;
    for (ReductionTree& tree : trees) records.push_back(tree.records().allocate(kMostStrips));
    e_.for_loop("block", begin, end, e_.i64(block), [&](Value* i) {
      Value* count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, b_.CreateSub(end, i), e_.i64(block));
      Value* strips = strips_of(e_, count, lanes_);
      states_.write_frame(state, row, i, count);
      for (size_t g = 0; g < groups_.size(); ++g) {
        trees[g].reduce(call, state, row.length, records[g]);
        e_.for_loop("strip", e_.i64(0), strips, e_.i64(1), [&](Value* strip) {
          const std::vector<Components> finals = trees[g].records().read(records[g], strip);
          for (size_t m = 0; m < finals.size(); ++m) {
            size_t reduction = groups_[g].monoids[m].first_reduction();
            for (Value* result : groups_[g].monoids[m].results(finals[m]))
              states_.write_result(state, reduction++, strip, result);
          }
        });
      }
      if (!along_reduced_.empty())
        b_.CreateCall(masked ? elements_.back() : elements_.front(),
                      {call, state, e_.i64(0), row.length, llvm::ConstantPointerNull::get(b_.getPtrTy())});
      if (per_column_.empty()) return;
      e_.for_loop("strip", e_.i64(0), strips, e_.i64(1), [&](Value* strip) {
        Frame frame = row;
        frame.reduced = states_.read_results(state, strip, e_.spec.reductions.size());
        const Chunk chunk = strip_chunk(e_, {i, count, lanes_, masked}, strip);
        const auto values = e_.evaluate(frame, per_column_roots(), chunk)[0];
        for (size_t k = 0; k < values.size(); ++k)
          e_.store_elements(frame, e_.spec.inputs.size() + per_column_[k], chunk, values[k]);
      });
    });
  }

  std::vector<int32_t> per_column_roots() const {
    std::vector<int32_t> roots;
    for (const size_t k : per_column_) roots.push_back(e_.spec.results[k]);
    return roots;
  }

  Emitter& e_;
  llvm::IRBuilder<>& b_;
  std::string name_;
  std::vector<ReductionGroup> groups_;
  unsigned lanes_;
  FrameState states_;
  std::vector<size_t> per_column_, along_reduced_;  // outputs
  std::vector<std::vector<ReductionTree>> trees_;   // whole strips (when they differ), then partial ones
  std::vector<llvm::Function*> elements_;           // alike, of the outputs along the reduced dim
};

}  // namespace

void emit_column(Emitter& e, const std::string& name) { ColumnKernel(e, name).emit(); }

}  // namespace tutti::codegen
