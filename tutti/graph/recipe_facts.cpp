#include "tutti/graph/recipe_facts.h"

#include <algorithm>

namespace tutti::graph {

RecipeFacts::RecipeFacts(const OpCall& call, std::span<const DType> outputs) {
  RecipeBuilder builder(call, outputs, body_);
  call.op.recipe.build(builder);
  results_ = std::move(builder.results);
  if (call.op.recipe.params) call.op.recipe.params(call, params_);
}

int32_t RecipeFacts::without_conversions(int32_t id) const {
  const std::vector<ExprNode>& nodes = body_.pool.nodes();
  while (nodes[static_cast<size_t>(id)].op == ScalarOp::cast) id = nodes[static_cast<size_t>(id)].operands[0];
  return id;
}

bool RecipeFacts::is_never_zero(int32_t divisor) const {
  const ExprNode& node = body_.pool.nodes()[static_cast<size_t>(divisor)];
  if (node.op == ScalarOp::constant) return node.i != 0;
  return node.op == ScalarOp::param && params_[node.index].i != 0;
}

bool RecipeFacts::divides() const {
  const std::vector<ExprNode>& nodes = body_.pool.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [&](const ExprNode& node) {
    const bool is_division = node.op == ScalarOp::floordiv || node.op == ScalarOp::truncdiv || node.op == ScalarOp::remainder || node.op == ScalarOp::fmod;
    return is_division && !is_floating(node.dtype) && !is_never_zero(node.operands[1]);
  });
}

bool RecipeFacts::counts() const {
  const std::vector<ExprNode>& nodes = body_.pool.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [](const ExprNode& n) { return n.op == ScalarOp::linear_index || n.op == ScalarOp::inner_index; });
}

bool RecipeFacts::adds() const {
  const std::vector<ExprNode>& nodes = body_.pool.nodes();
  const ExprNode& sum = nodes[static_cast<size_t>(without_conversions(results_[0].id()))];
  if (sum.op != ScalarOp::add || results_.size() != 1) return false;
  const ExprNode& a = nodes[static_cast<size_t>(without_conversions(sum.operands[0]))];
  const ExprNode& b = nodes[static_cast<size_t>(without_conversions(sum.operands[1]))];
  return a.op == ScalarOp::arg && b.op == ScalarOp::arg && a.index + b.index == 1;
}

}  // namespace tutti::graph
