#include "tutti/ops/engine/recipe_kernel.h"

#include <memory>

#include "tutti/core/hash.h"
#include "tutti/ops/engine/device_engine.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/kernel_trace.h"

namespace tutti {

using codegen::LoopKind;
using codegen::StrideClass;

DType recipe_dtype(const Recipe& recipe, DType dtype) {
  if (!recipe.moves_bits) return dtype;
  switch (itemsize(dtype)) {
    case 1:
      return DType::i8;
    case 2:
      return DType::i16;
    case 4:
      return DType::i32;
    default:
      return DType::i64;
  }
}

Expr RecipeBuilder::in(int i) {
  if (!inputs_.empty()) return inputs_[static_cast<size_t>(i)];
  return pool.arg(i, recipe_dtype(call.op.recipe, call.inputs[static_cast<size_t>(i)].dtype()));
}

Expr RecipeBuilder::reduce(codegen::ReduceOp op, Expr value, codegen::TreeKind tree) {
  const bool index = op == codegen::ReduceOp::argmax || op == codegen::ReduceOp::argmin;
  const bool truth = op == codegen::ReduceOp::any || op == codegen::ReduceOp::all;
  const DType dtype = index ? DType::i64 : truth ? DType::boolean : value.dtype();
  reductions.push_back({op, tree, value.id()});
  return pool.leaf(ScalarOp::reduced, dtype, static_cast<int>(reductions.size()) - 1);
}

std::pair<Expr, Expr> RecipeBuilder::softmax_stats(Expr value) {
  const Expr m = reduce(codegen::ReduceOp::softmax_max, value, codegen::TreeKind::aligned);
  return {m, reduce(codegen::ReduceOp::softmax_sum, value, codegen::TreeKind::aligned)};
}

std::pair<Expr, Expr> RecipeBuilder::softmax_rest(Expr value, codegen::TreeKind tree) {
  const Expr m = reduce(codegen::ReduceOp::softmax_max, value, tree);
  return {m, reduce(codegen::ReduceOp::softmax_rest, value, tree)};
}

Expr RecipeBuilder::row_length(DType dtype) { return cast(pool.leaf(ScalarOp::row_length, DType::i64), dtype); }

void RecipeBuilder::out(Expr value) { results.push_back(value); }

size_t KernelKey::hash() const {
  uint64_t h = reinterpret_cast<uintptr_t>(op) ^ variant * 0x9E3779B97F4A7C15ull ^ static_cast<uint64_t>(kind);
  for (size_t i = 0; i < count; ++i) h = (h ^ operands[i]) * 0x9E3779B97F4A7C15ull;
  return static_cast<size_t>(place_of(h >> 40));
}

KernelKey key_of(const OpCall& call, std::span<const Tensor> outputs, LoopKind kind) {
  return {&call.op, call.op.recipe.variant ? call.op.recipe.variant(call) : call.attrs.hash_of_rules(), kind,
          device_of(call, outputs).kind};
}

KernelKey key_of(const OpCall& call, std::span<const Tensor> outputs, const LoopPlan& plan) {
  TUTTI_ASSERT(plan.nest.operands.size() <= kMaxOperands, "{} has {} operands", call.op.name,
               plan.nest.operands.size());
  KernelKey key = key_of(call, outputs, plan.kind);
  for (const std::span<const Tensor> list : {call.inputs, std::span<const Tensor>(outputs)}) {
    for (const Tensor& t : list) key.add(recipe_dtype(call.op.recipe, t.dtype()), plan.stride_class(key.count));
  }
  return key;
}

namespace {

struct CallKernel {
  const codegen::Kernel* kernel = nullptr;
  const TraceKernel* trace = nullptr;
};

CallKernel build_kernel(const OpCall& call, std::span<const Tensor> outputs, const KernelKey& key) {
  const Recipe& recipe = call.op.recipe;
  const size_t n_inputs = call.inputs.size();
  InlineDims<DType> output_dtypes;
  for (size_t k = 0; k < outputs.size(); ++k) output_dtypes.push_back(key.dtype(n_inputs + k));
  KernelBody body;
  RecipeBuilder builder(call, output_dtypes, body);
  recipe.build(builder);
  TUTTI_ASSERT(builder.results.size() == outputs.size(), "the recipe of {} has {} results", call.op.name,
               builder.results.size());
  codegen::KernelSpec spec;
  spec.kind = key.kind;
  spec.name = call.op.name;
  const auto operand = [&](size_t i) { return codegen::OperandSpec{key.dtype(i), key.stride_class(i)}; };
  for (size_t i = 0; i < n_inputs; ++i) spec.inputs.push_back(operand(i));
  for (size_t k = 0; k < outputs.size(); ++k) {
    spec.outputs.push_back(operand(n_inputs + k));
    spec.outputs.back().along_reduced = is_along_reduced(key.kind, (recipe.per_row >> k & 1) != 0);
    spec.results.push_back(cast(builder.results[k], compute_dtype(key.dtype(n_inputs + k))).id());
  }
  if (recipe.pick) {
    const Pick pick = recipe.pick(call);
    (pick.read < 0 ? spec.outputs[0] : spec.inputs[static_cast<size_t>(pick.read)]).index = pick.index;
  }
  spec.nodes = body.pool.nodes();
  spec.reductions = std::move(body.reductions);
  return {&engine_of(call, outputs).kernel_for(spec), &describe_generated(call.op, spec)};
}

}  // namespace

// A small table per thread answers without locks. Where an op's own variant does not say it all, the key holds no more
// than a hash of the attrs that are rules, so these are compared as well.
const codegen::Kernel& find_kernel(const OpCall& call, std::span<const Tensor> outputs, const KernelKey& key) {
  struct Entry {
    KernelKey key{};
    CallKernel made{};
    std::unique_ptr<const Attrs> attrs = nullptr;  // where they are part of the key
  };
  thread_local std::array<Entry, 1024> table;
  Entry& entry = table[key.hash() % table.size()];
  if (entry.made.kernel == nullptr || !(entry.key == key) ||
      (entry.attrs != nullptr && !call.attrs.has_rules_of(*entry.attrs))) {
    entry = {key, build_kernel(call, outputs, key)};
    const bool has_rules = call.attrs.type() != nullptr && call.attrs.type()->has_rules;
    if (call.op.recipe.variant == nullptr && has_rules) entry.attrs = std::make_unique<const Attrs>(call.attrs);
  }
  KernelTrace::note(*entry.made.trace);
  return *entry.made.kernel;
}

}  // namespace tutti
