#include "tutti/plan/recipe_cost.h"

#include "tutti/core/expr_walk.h"
#include "tutti/plan/node_call.h"
#include "tutti/plan/recipe_facts.h"

namespace tutti::graph {
namespace {

// Additions that take about as long as one evaluation of a vector of floats: estimates, which need only tell divisions
// from polynomials and polynomials from loops. The code generator, which shapes loops, has weights of its own, which
// count instructions and no time: a square root is 8 here, and as light as an addition there.
double work_of(const ExprNode& node) {
  switch (node.op) {
    case ScalarOp::arg:
    case ScalarOp::param:
    case ScalarOp::constant:
    case ScalarOp::row_length:
    case ScalarOp::reduced:
      return 0;
    case ScalarOp::truediv:
    case ScalarOp::reciprocal:
      return 6;
    case ScalarOp::sqrt:
      return 8;
    case ScalarOp::rsqrt:
      return 14;
    case ScalarOp::exp:
    case ScalarOp::exp2:
      return 25;
    case ScalarOp::floordiv:
    case ScalarOp::truncdiv:
    case ScalarOp::remainder:
    case ScalarOp::fmod:
    case ScalarOp::philox:
      return 40;
    case ScalarOp::expm1:
    case ScalarOp::log:
    case ScalarOp::log2:
    case ScalarOp::log10:
    case ScalarOp::log1p:
    case ScalarOp::tanh:
    case ScalarOp::sigmoid:
    case ScalarOp::erf:
      return 40;
    case ScalarOp::sin:
    case ScalarOp::cos:
    case ScalarOp::sinh:
    case ScalarOp::cosh:
    case ScalarOp::asin:
    case ScalarOp::acos:
    case ScalarOp::atan:
    case ScalarOp::atan2:
      return 60;
    case ScalarOp::tan:
    case ScalarOp::asinh:
    case ScalarOp::acosh:
    case ScalarOp::atanh:
    case ScalarOp::erfcx:
    case ScalarOp::erfinv:
    case ScalarOp::pow:
    case ScalarOp::lgamma:
      return 120;
    default:
      return 1;
  }
}

class Walks {
 public:
  explicit Walks(const RecipeFacts& recipe) : body_(recipe.body()), results_(recipe.results()) {}

  // The reductions that one walk computes, from the k-th on: those whose elements need no result of another one of
  // them. A softmax takes a second walk, with an exponential.
  std::vector<RecipeWalk> reductions() const {
    std::vector<RecipeWalk> all;
    for (size_t k = 0; k < body_.reductions.size();) {
      std::vector<int32_t> values;
      bool exponential = false;
      const size_t first = k;
      do {
        values.push_back(body_.reductions[k].value);
        exponential = exponential || is_softmax(body_.reductions[k].op);
        ++k;
      } while (k < body_.reductions.size() && !needs_reduction_from(body_.reductions[k].value, first));
      all.push_back(walk_of(values));
      all.back().work += static_cast<double>(values.size());
      if (exponential) {
        all.push_back(all.back());
        all.back().work += 26;
      }
    }
    return all;
  }

  RecipeWalk outputs(uint32_t per_row) const {
    std::vector<int32_t> roots;
    for (size_t k = 0; k < results_.size(); ++k) {
      if ((per_row >> k & 1) == 0) roots.push_back(results_[k].id());
    }
    return walk_of(roots);
  }

 private:
  static bool is_softmax(codegen::ReduceOp op) {
    return op == codegen::ReduceOp::softmax_max || op == codegen::ReduceOp::softmax_sum ||
           op == codegen::ReduceOp::softmax_rest;
  }

  const ExprNode& at(int32_t id) const { return body_.pool.nodes()[static_cast<size_t>(id)]; }

  bool needs_reduction_from(int32_t value, size_t first) const {
    const std::vector<bool> needed = needed_by({&value, 1}, body_.pool.nodes());
    for (size_t i = 0; i < needed.size(); ++i) {
      const ExprNode& node = at(static_cast<int32_t>(i));
      if (needed[i] && node.op == ScalarOp::reduced && static_cast<size_t>(node.index) >= first) return true;
    }
    return false;
  }

  RecipeWalk walk_of(const std::vector<int32_t>& roots) const {
    const std::vector<bool> needed = needed_by(roots, body_.pool.nodes());
    std::vector<bool> varies(needed.size(), false);  // along the row
    RecipeWalk walk;
    for (size_t i = 0; i < needed.size(); ++i) {
      const ExprNode& node = at(static_cast<int32_t>(i));
      if (!needed[i]) continue;
      varies[i] = node.op == ScalarOp::arg || node.op == ScalarOp::linear_index || node.op == ScalarOp::inner_index;
      for (int k = 0; k < arity_of(node.op); ++k)
        varies[i] = varies[i] || varies[static_cast<size_t>(node.operands[k])];
      if (!varies[i]) continue;
      walk.work += work_of(node);
      if (node.op == ScalarOp::arg && node.index < 32) walk.reads |= 1u << node.index;
    }
    return walk;
  }

  const KernelBody& body_;
  const std::vector<Expr>& results_;
};

}  // namespace

RecipeCost recipe_cost(const Node& node, const Graph& graph, uint32_t per_row) {
  InlineDims<DType> dtypes;
  for (const Value& v : node.outputs) dtypes.push_back(v.dtype);
  const RecipeFacts recipe(NodeCall(node, graph).call, dtypes);
  const Walks walks(recipe);
  return {walks.reductions(), walks.outputs(per_row)};
}

}  // namespace tutti::graph
