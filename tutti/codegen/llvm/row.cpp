#include "tutti/codegen/llvm/monoid.h"
#include "tutti/codegen/llvm/reduction_tree.h"
#include "tutti/codegen/llvm/row_loop.h"
#include "tutti/codegen/llvm/types.h"

namespace tutti::codegen {

using llvm::Value;

namespace {

constexpr unsigned kLeafLanes = 16;  // lane j takes elements j, j + 16, ... of its leaf

// Accumulators of a leaf, in stack slots that become registers.
class Accumulators {
 public:
  Accumulators(Emitter& e, const ReductionGroup& group) : e_(e), group_(group) {
    for (const Monoid& monoid : group.monoids) {
      slots_.emplace_back();
      for (Value* v : monoid.leaf_identity(kLeafLanes)) {
        slots_.back().push_back(e.slot(v->getType(), "acc"));
        e.b.CreateStore(v, slots_.back().back());
      }
    }
  }

  Components read(size_t m) const {
    Components v;
    for (size_t k = 0; k < slots_[m].size(); ++k) {
      llvm::Type* type = group_.monoids[m].leaf_identity(kLeafLanes)[k]->getType();
      v.push_back(e_.b.CreateLoad(type, slots_[m][k]));
    }
    return v;
  }
  // What of a softmax stands behind the maximum.
  Components sums(size_t m) const {
    Components v = read(m);
    v.erase(v.begin());
    return v;
  }

  void write(size_t m, size_t k, Value* v) { e_.b.CreateStore(v, slots_[m][k]); }

 private:
  Emitter& e_;
  const ReductionGroup& group_;
  std::vector<Components> slots_;
};

// Calls body with every full chunk of [start, start + count), then with the partial one; `masked`: with all of them as
// partial ones, so that the body is emitted once.
void for_chunks(Emitter& e, Value* start, Value* count, bool masked, const std::function<void(const Chunk&)>& body) {
  llvm::IRBuilder<>& b = e.b;
  Value* end = b.CreateAdd(start, count);
  if (masked) {
    e.for_loop("chunk", start, end, e.i64(kLeafLanes), [&](Value* i) { body(e.partial_chunk(i, end, kLeafLanes)); });
    return;
  }
  Value* whole = b.CreateAdd(start, b.CreateAnd(count, e.i64(-static_cast<int64_t>(kLeafLanes))));
  e.for_loop("chunk", start, whole, e.i64(kLeafLanes), [&](Value* i) { body({i}); });
  e.if_then(b.CreateICmpSLT(whole, end), [&] { body(e.partial_chunk(whole, end, kLeafLanes)); });
}

Value* lane_indices(Emitter& e, Value* first) {
  Value* steps = e.b.CreateStepVector(widened(e.b.getInt64Ty(), kLeafLanes));
  return e.b.CreateAdd(splat(e.b, first, kLeafLanes), steps);
}

llvm::Function* emit_leaf(Emitter& e, const ReductionGroup& group, FrameState& states, const std::string& name) {
  llvm::Function* leaf = begin_leaf(e, name);
  Value *call = leaf->getArg(0), *state = leaf->getArg(1), *start = leaf->getArg(2), *count = leaf->getArg(3);
  Frame frame = states.read_frame(state, kLeafLanes);
  e.load_picks(frame, call);
  frame.reduced = states.read_results(state, e.i64(0), group.monoids.front().first_reduction());
  const std::vector<int32_t> values = group.value_nodes();
  e.prepare_uniform(frame, values);
  Accumulators accumulators(e, group);

  const bool masked = e.loop_shape(values, {}, kLeafLanes).masked_only;
  for_chunks(e, start, count, masked, [&](const Chunk& chunk) {
    const auto x = e.evaluate(frame, values, chunk)[0];
    for (size_t m = 0; m < values.size(); ++m) {
      const Monoid& monoid = group.monoids[m];
      const Components element = monoid.lift(x[m], lane_indices(e, chunk.index), chunk.mask);
      const Components sofar = accumulators.read(m);
      if (monoid.is_softmax()) {
        accumulators.write(m, 0, monoid.combine_max(sofar[0], element[0]));
        continue;
      }
      const Components joined = monoid.combine(sofar, element);
      for (size_t k = 0; k < joined.size(); ++k) accumulators.write(m, k, joined[k]);
    }
  });

  std::vector<Components> results(values.size());
  std::vector<int32_t> softmax_values;
  for (size_t m = 0; m < values.size(); ++m) {
    Components v = accumulators.read(m);
    if (!group.monoids[m].is_softmax()) {
      results[m] = group.monoids[m].fold_lanes(v);
      continue;
    }
    softmax_values.push_back(values[m]);
    results[m] = {group.monoids[m].fold_max(v[0]), nullptr};
  }
  if (!softmax_values.empty()) {
    for_chunks(e, start, count, masked, [&](const Chunk& chunk) {
      const auto x = e.evaluate(frame, softmax_values, chunk)[0];
      size_t next = 0;
      for (size_t m = 0; m < values.size(); ++m) {
        if (!group.monoids[m].is_softmax()) continue;
        Value* maximum = splat(e.b, results[m][0], kLeafLanes);
        const Components sums = group.monoids[m].add_exponential(accumulators.sums(m), x[next++], maximum, chunk.mask);
        for (size_t k = 0; k < sums.size(); ++k) accumulators.write(m, 1 + k, sums[k]);
      }
    });
    for (size_t m = 0; m < values.size(); ++m) {
      const Monoid& monoid = group.monoids[m];
      if (monoid.is_softmax()) results[m] = monoid.leaf_result(results[m][0], monoid.fold_sums(accumulators.sums(m)));
    }
  }
  e.report_error(call, frame.error);
  Records(e, group, 1).write(leaf->getArg(4), e.i64(0), results);
  e.b.CreateRetVoid();
  return leaf;
}

}  // namespace

void emit_row(Emitter& e, const std::string& name) {
  const std::vector<ReductionGroup> groups = group_reductions(e);
  FrameState states(e, 1, 1);
  std::vector<ReductionTree> trees;
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::string suffix = std::to_string(g);
    trees.emplace_back(e, groups[g], 1, emit_leaf(e, groups[g], states, "leaf_" + suffix), "tree_" + suffix);
  }

  std::vector<size_t> along_row, once_per_row;
  std::vector<int32_t> once_roots;
  for (size_t k = 0; k < e.spec.outputs.size(); ++k) {
    if (e.spec.moves_along_row(e.spec.outputs[k])) {
      along_row.push_back(k);
      continue;
    }
    once_per_row.push_back(k);
    once_roots.push_back(e.spec.results[k]);
  }
  Value* state = nullptr;
  const auto reduce_and_store = [&](Value* call, Frame& frame) {
    if (!state) state = states.allocate();
    states.write_frame(state, frame, nullptr, nullptr);
    for (size_t g = 0; g < groups.size(); ++g) {
      Value* out = trees[g].records().allocate(1);
      trees[g].reduce(call, state, frame.length, out);
      const std::vector<Components> finals = trees[g].records().read(out, e.i64(0));
      for (size_t m = 0; m < finals.size(); ++m) {
        for (Value* result : groups[g].monoids[m].results(finals[m])) {
          states.write_result(state, frame.reduced.size(), e.i64(0), result);
          frame.reduced.push_back(result);
        }
      }
    }
    if (!along_row.empty()) e.store_row(frame, along_row, frame.length);
    e.prepare_uniform(frame, once_roots);
    for (const size_t k : once_per_row)
      e.store_scalar(frame, e.spec.inputs.size() + k, e.i64(0), frame.uniform[static_cast<size_t>(e.spec.results[k])]);
  };
  emit_row_loop(e, name, kLeafLanes,
                [&](Value* call, Frame& frame) { e.with_row_picks(frame, [&] { reduce_and_store(call, frame); }); });
}

}  // namespace tutti::codegen
