#include "tutti/codegen/kernel_check.h"

#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

bool takes_one_dtype(ScalarOp op) {
  return op != ScalarOp::where && op != ScalarOp::cast && op != ScalarOp::bitcast && op != ScalarOp::philox;
}

class Checker {
 public:
  explicit Checker(const KernelSpec& spec) : spec_(spec) {}

  void check() const {
    TUTTI_CHECK(!spec_.outputs.empty(), "kernel '{}': it has no output", spec_.name);
    TUTTI_CHECK(spec_.results.size() == spec_.outputs.size(), "kernel '{}': {} results for {} outputs", spec_.name,
                spec_.results.size(), spec_.outputs.size());
    TUTTI_CHECK(spec_.kind != LoopKind::pointwise || spec_.reductions.empty(),
                "kernel '{}': a pointwise kernel has no reductions; use LoopKind::row", spec_.name);
    for (const auto* operands : {&spec_.inputs, &spec_.outputs}) {
      for (const OperandSpec& operand : *operands) check_index(operand);
    }
    for (size_t n = 0; n < spec_.nodes.size(); ++n) check_node(n);
    for (size_t k = 0; k < spec_.reductions.size(); ++k) check_reduction(k);
    for (size_t k = 0; k < spec_.outputs.size(); ++k) check_output(k);
  }

 private:
  const ExprNode& node(int32_t id) const { return spec_.nodes[static_cast<size_t>(id)]; }

  void check_id(int32_t id, size_t limit, const char* what) const {
    TUTTI_CHECK(id >= 0 && static_cast<size_t>(id) < limit, "kernel '{}': {} is node {}, expected 0 to {}", spec_.name,
                what, id, static_cast<int64_t>(limit) - 1);
  }

  void check_index(const OperandSpec& operand) const {
    if (operand.index == -1) return;
    TUTTI_CHECK(operand.index >= 0 && static_cast<size_t>(operand.index) < spec_.inputs.size(),
                "kernel '{}': an operand is picked by input {} of {}", spec_.name, operand.index, spec_.inputs.size());
    const OperandSpec& index = spec_.inputs[static_cast<size_t>(operand.index)];
    TUTTI_CHECK(index.dtype == DType::i64 || index.dtype == DType::i32,
                "kernel '{}': the indices in input {} are {}; expected i64 or i32", spec_.name, operand.index,
                name_of(index.dtype));
    TUTTI_CHECK(index.index == -1,
                "kernel '{}': input {} holds indices and is picked itself; pick it in a kernel before this one",
                spec_.name, operand.index);
    TUTTI_CHECK(spec_.kind != LoopKind::column,
                "kernel '{}': an operand of a column kernel is picked; use LoopKind::row", spec_.name);
  }

  void check_node(size_t n) const {
    const ExprNode& x = spec_.nodes[n];
    TUTTI_CHECK(compute_dtype(x.dtype) == x.dtype, "kernel '{}': node {} computes in {}; expected {}", spec_.name, n,
                name_of(x.dtype), name_of(compute_dtype(x.dtype)));
    const int arity = arity_of(x.op);
    for (int k = 0; k < arity; ++k) {
      check_id(x.operands[k], n, "an operand");  // operands come before their users
      const DType first = node(x.operands[0]).dtype;
      TUTTI_CHECK(!takes_one_dtype(x.op) || node(x.operands[k]).dtype == first, "kernel '{}': {} of {} and {}",
                  spec_.name, name_of(x.op), name_of(first), name_of(node(x.operands[k]).dtype));
    }
    if (x.op == ScalarOp::where) {
      TUTTI_CHECK(node(x.operands[0]).dtype == DType::boolean && node(x.operands[1]).dtype == node(x.operands[2]).dtype,
                  "kernel '{}': where({}, {}, {}); expected a boolean and two of one dtype", spec_.name,
                  name_of(node(x.operands[0]).dtype), name_of(node(x.operands[1]).dtype),
                  name_of(node(x.operands[2]).dtype));
    }
    if (x.op == ScalarOp::philox) {
      for (int k = 0; k < 3; ++k)
        TUTTI_CHECK(node(x.operands[k]).dtype == DType::i64, "kernel '{}': philox takes i64", spec_.name);
    }
    if (x.op == ScalarOp::stored) {
      TUTTI_CHECK(x.index >= 0 && x.index < kNumDTypes && compute_dtype(static_cast<DType>(x.index)) == x.dtype,
                  "kernel '{}': node {} of {} is stored as dtype {}", spec_.name, n, name_of(x.dtype), x.index);
    }
    if (x.op == ScalarOp::arg) {
      TUTTI_CHECK(x.index >= 0 && static_cast<size_t>(x.index) < spec_.inputs.size(), "kernel '{}': argument {} of {}",
                  spec_.name, x.index, spec_.inputs.size());
      const DType storage = spec_.inputs[static_cast<size_t>(x.index)].dtype;
      TUTTI_CHECK(compute_dtype(storage) == x.dtype, "kernel '{}': argument {} is {} and computes in {}, not {}",
                  spec_.name, x.index, name_of(storage), name_of(compute_dtype(storage)), name_of(x.dtype));
    }
    if (x.op == ScalarOp::reduced) {
      TUTTI_CHECK(x.index >= 0 && static_cast<size_t>(x.index) < spec_.reductions.size(),
                  "kernel '{}': reduction {} of {}", spec_.name, x.index, spec_.reductions.size());
      const DType held = reduction_dtype(static_cast<size_t>(x.index));
      TUTTI_CHECK(held == x.dtype, "kernel '{}': reduction {} gives {}, the node says {}", spec_.name, x.index,
                  name_of(held), name_of(x.dtype));
    }
    if (x.op == ScalarOp::linear_index || x.op == ScalarOp::inner_index || x.op == ScalarOp::row_length)
      TUTTI_CHECK(x.dtype == DType::i64, "kernel '{}': {} is i64, not {}", spec_.name, name_of(x.op), name_of(x.dtype));
  }

  DType reduction_dtype(size_t k) const {
    const Reduction& r = spec_.reductions[k];
    check_id(r.value, spec_.nodes.size(), "the value of a reduction");
    if (r.op == ReduceOp::argmax || r.op == ReduceOp::argmin) return DType::i64;
    if (r.op == ReduceOp::any || r.op == ReduceOp::all) return DType::boolean;
    return node(r.value).dtype;
  }

  // True when the value of `id` depends on reduction `limit` or a later one.
  bool uses_reduction(int32_t id, size_t limit) const {
    return any_leaf(
        id, [&](const ExprNode& x) { return x.op == ScalarOp::reduced && static_cast<size_t>(x.index) >= limit; });
  }

  void check_reduction(size_t k) const {
    const Reduction& r = spec_.reductions[k];
    const DType held = reduction_dtype(k);
    const DType value = node(r.value).dtype;
    TUTTI_CHECK(!uses_reduction(r.value, spec_.kind == LoopKind::scan ? 0 : k),
                "kernel '{}': the value of reduction {} uses a reduction that is not finished", spec_.name, k);
    const bool of_maximum = r.op == ReduceOp::softmax_sum || r.op == ReduceOp::softmax_rest,
               softmax = of_maximum || r.op == ReduceOp::softmax_max;
    TUTTI_CHECK(!softmax || is_floating(value), "kernel '{}': softmax over {}", spec_.name, name_of(value));
    TUTTI_CHECK(softmax || r.op == ReduceOp::argmax || r.op == ReduceOp::argmin || held != DType::boolean ||
                    r.op == ReduceOp::any || r.op == ReduceOp::all,
                "kernel '{}': reduction {} over booleans; cast the value to i64, or use any or all", spec_.name, k);
    TUTTI_CHECK((r.op != ReduceOp::any && r.op != ReduceOp::all) || value == DType::boolean,
                "kernel '{}': any and all take booleans, not {}", spec_.name, name_of(value));
    const auto pair_of = [&](size_t other, ReduceOp op) {
      return other < spec_.reductions.size() && spec_.reductions[other].op == op &&
             spec_.reductions[other].value == r.value && spec_.reductions[other].tree == r.tree;
    };
    TUTTI_CHECK(r.op != ReduceOp::softmax_max || pair_of(k + 1, ReduceOp::softmax_sum) ||
                    pair_of(k + 1, ReduceOp::softmax_rest),
                "kernel '{}': softmax_max must be followed by softmax_sum or softmax_rest of the same value",
                spec_.name);
    TUTTI_CHECK(!of_maximum || (k > 0 && pair_of(k - 1, ReduceOp::softmax_max)),
                "kernel '{}': softmax_sum and softmax_rest must follow softmax_max of the same value", spec_.name);
  }

  void check_output(size_t k) const {
    const int32_t result = spec_.results[k];
    check_id(result, spec_.nodes.size(), "a result");
    const DType held = node(result).dtype, stored = spec_.outputs[k].dtype;
    TUTTI_CHECK(compute_dtype(stored) == held, "kernel '{}': output {} stores {} but its value is {}; cast it to {}",
                spec_.name, k, name_of(stored), name_of(held), name_of(compute_dtype(stored)));
    const bool moves = spec_.moves_along_row(spec_.outputs[k]);
    TUTTI_CHECK(spec_.kind == LoopKind::row || moves,
                "kernel '{}': output {} stays in place along the row; only row kernels write once per row", spec_.name,
                k);
    if (spec_.kind == LoopKind::row && !moves)
      TUTTI_CHECK(!moves_along_row(result),
                  "kernel '{}': output {} is written once per row but its value changes along it", spec_.name, k);
    const bool along_reduced = spec_.outputs[k].along_reduced;
    TUTTI_CHECK(!along_reduced || spec_.kind == LoopKind::column,
                "kernel '{}': output {} has an element for each of the reduced dim; only column kernels have one",
                spec_.name, k);
    if (spec_.kind == LoopKind::column && !along_reduced)
      TUTTI_CHECK(!uses_elements(result),
                  "kernel '{}': output {} of a column kernel may use reductions and params only", spec_.name, k);
    TUTTI_CHECK(
        !along_reduced || !any_leaf(result, [](const ExprNode& x) { return x.op == ScalarOp::linear_index; }),
        "kernel '{}': output {} along the reduced dim uses linear_index, which only counts columns; use LoopKind::row",
        spec_.name, k);
  }

  template <class Fn>
  bool any_leaf(int32_t id, Fn fn) const {
    std::vector<bool> seen(static_cast<size_t>(id) + 1);
    seen[static_cast<size_t>(id)] = true;
    for (size_t n = seen.size(); n-- > 0;) {
      if (!seen[n]) continue;
      const ExprNode& x = spec_.nodes[n];
      if (arity_of(x.op) == 0 && fn(x)) return true;
      for (int k = 0; k < arity_of(x.op); ++k) seen[static_cast<size_t>(x.operands[k])] = true;
    }
    return false;
  }

  bool moves_along_row(int32_t id) const {
    return any_leaf(id, [&](const ExprNode& x) {
      return x.op == ScalarOp::linear_index || x.op == ScalarOp::inner_index ||
             (x.op == ScalarOp::arg && spec_.moves_along_row(spec_.inputs[static_cast<size_t>(x.index)]));
    });
  }

  bool uses_elements(int32_t id) const {
    return any_leaf(id, [](const ExprNode& x) { return x.op == ScalarOp::arg || x.op == ScalarOp::inner_index; });
  }

  const KernelSpec& spec_;
};

}  // namespace

void check_kernel(const KernelSpec& spec) { Checker(spec).check(); }

}  // namespace tutti::codegen
