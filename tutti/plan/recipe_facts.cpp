#include "tutti/plan/recipe_facts.h"

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
  const auto converts = [&] {
    return nodes[static_cast<size_t>(id)].op == ScalarOp::cast || nodes[static_cast<size_t>(id)].op == ScalarOp::stored;
  };
  while (converts()) id = nodes[static_cast<size_t>(id)].operands[0];
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
    const bool is_division = node.op == ScalarOp::floordiv || node.op == ScalarOp::truncdiv ||
                             node.op == ScalarOp::remainder || node.op == ScalarOp::fmod;
    return is_division && !is_floating(node.dtype) && !is_never_zero(node.operands[1]);
  });
}

bool RecipeFacts::counts() const {
  const std::vector<ExprNode>& nodes = body_.pool.nodes();
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const ExprNode& n) { return n.op == ScalarOp::linear_index || n.op == ScalarOp::inner_index; });
}

bool RecipeFacts::adds(size_t count) const {
  if (results_.size() != 1 || count < 2) return false;
  const std::vector<ExprNode>& nodes = body_.pool.nodes();
  const auto at = [&](int32_t id) -> const ExprNode& { return nodes[static_cast<size_t>(without_conversions(id))]; };
  const auto is_arg = [](const ExprNode& node, size_t index) {
    return node.op == ScalarOp::arg && static_cast<size_t>(node.index) == index;
  };
  const ExprNode* sum = &at(results_[0].id());
  // From the last operand, which was added last, to the first two.
  for (size_t i = count - 1; i > 1; --i) {
    if (sum->op != ScalarOp::add || !is_arg(at(sum->operands[1]), i)) return false;
    sum = &at(sum->operands[0]);
  }
  if (sum->op != ScalarOp::add) return false;
  const ExprNode &first = at(sum->operands[0]), &second = at(sum->operands[1]);
  return (is_arg(first, 0) && is_arg(second, 1)) || (count == 2 && is_arg(first, 1) && is_arg(second, 0));
}

}  // namespace tutti::graph
