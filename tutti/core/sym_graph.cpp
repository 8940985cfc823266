#include "tutti/core/sym_graph.h"

#include <algorithm>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/core/number.h"

namespace tutti {
namespace {

thread_local SymGraph* current_graph = nullptr;

// A shared node is written once for each use, so text grows exponentially with depth.
constexpr int kDeepestText = 8;

const char* symbol_of(SymOp op) {
  static constexpr const char* names[] = {"",    "",    "+",   "-",  "*",  "-",  "//", "truncdiv", "%", "fmod",
                                          "**",  "min", "max", "==", "!=", "<",  "<=", ">",        ">="};
  return names[static_cast<int>(op)];
}

}  // namespace

SymGraph* SymGraph::current() { return current_graph; }

SymGraph::Scope::Scope(SymGraph& graph) : previous_(std::exchange(current_graph, &graph)) {}
SymGraph::Scope::~Scope() { current_graph = previous_; }

int64_t evaluate_sym_op(SymOp op, int64_t a, int64_t b) {
  switch (op) {
    case SymOp::constant:
    case SymOp::symbol: break;
    case SymOp::add: return checked_add(a, b);
    case SymOp::sub: return checked_sub(a, b);
    case SymOp::mul: return checked_mul(a, b);
    case SymOp::neg: return checked_neg(a);
    case SymOp::floordiv: return checked_floordiv(a, b);
    case SymOp::truncdiv: return checked_truncdiv(a, b);
    case SymOp::remainder:
      if (b == 0) throw IntegerDivideByZero("remainder");
      return remainder_i64(a, b);
    case SymOp::fmod:
      if (b == 0) throw IntegerDivideByZero("fmod");
      return fmod_i64(a, b);
    case SymOp::pow: return checked_pow(a, b);
    case SymOp::minimum: return std::min(a, b);
    case SymOp::maximum: return std::max(a, b);
    case SymOp::eq: return a == b;
    case SymOp::ne: return a != b;
    case SymOp::lt: return a < b;
    case SymOp::le: return a <= b;
    case SymOp::gt: return a > b;
    case SymOp::ge: return a >= b;
  }
  throw InternalError("evaluate_sym_op: a leaf has no operation");
}

SymInt SymGraph::symbol(std::string name, int64_t hint) {
  Scope scope(*this);
  names_.push_back(std::move(name));
  hints_.push_back(hint);
  nodes_.push_back({SymOp::symbol, static_cast<int64_t>(names_.size()) - 1, 0});
  return SymInt::of_node(static_cast<int64_t>(nodes_.size()) - 1);
}

int64_t SymGraph::constant(int64_t value) {
  const auto [it, inserted] = interned_.try_emplace({SymOp::constant, value, 0}, nodes_.size());
  if (inserted) nodes_.push_back({SymOp::constant, value, 0});
  return it->second;
}

int64_t SymGraph::make(SymOp op, int64_t a, int64_t b) {
  if (node(a).op == SymOp::constant && node(b).op == SymOp::constant)
    return constant(evaluate_sym_op(op, node(a).a, node(b).a));
  const auto [it, inserted] = interned_.try_emplace({op, a, b}, nodes_.size());
  if (inserted) nodes_.push_back({op, a, b});
  return it->second;
}

// Operands come before their users, so one pass down finds the nodes that matter and one pass up computes them: linear
// in the graph however often a node is shared, and no recursion.
int64_t SymGraph::evaluate_node(int64_t index, std::span<const int64_t> bindings) const {
  std::vector<char> needed(static_cast<size_t>(index) + 1, 0);
  std::vector<int64_t> values(needed.size(), 0);
  needed[static_cast<size_t>(index)] = 1;
  const auto is_leaf = [](const SymNode& n) { return n.op == SymOp::constant || n.op == SymOp::symbol; };
  for (size_t i = needed.size(); i-- > 0;) {
    if (!needed[i] || is_leaf(nodes_[i])) continue;
    needed[static_cast<size_t>(nodes_[i].a)] = needed[static_cast<size_t>(nodes_[i].b)] = 1;
  }
  for (size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) continue;
    const SymNode& n = nodes_[i];
    if (n.op == SymOp::constant) {
      values[i] = n.a;
    } else if (n.op == SymOp::symbol) {
      TUTTI_CHECK(n.a < static_cast<int64_t>(bindings.size()), "symbol '{}' has no value: {} bindings were given",
                  names_[static_cast<size_t>(n.a)], bindings.size());
      values[i] = bindings[static_cast<size_t>(n.a)];
    } else {
      values[i] = evaluate_sym_op(n.op, values[static_cast<size_t>(n.a)], values[static_cast<size_t>(n.b)]);
    }
  }
  return values[static_cast<size_t>(index)];
}

int64_t SymGraph::evaluate(SymInt expression, std::span<const int64_t> bindings) const {
  return expression.is_symbolic() ? evaluate_node(expression.node(), bindings) : expression.value();
}

int64_t SymGraph::guard(int64_t index) {
  const int64_t answer = evaluate_node(index, hints_);
  guards_.push_back({index, answer});
  return answer;
}

std::string SymGraph::to_string(int64_t index) const { return to_string(index, 0); }

std::string SymGraph::to_string(int64_t index, int depth) const {
  const SymNode& n = node(index);
  if (n.op == SymOp::constant) return std::to_string(n.a);
  if (n.op == SymOp::symbol) return names_[static_cast<size_t>(n.a)];
  if (depth == kDeepestText) return "...";
  if (n.op == SymOp::neg) return fmt::format("-{}", to_string(n.a, depth + 1));
  return fmt::format("({} {} {})", to_string(n.a, depth + 1), symbol_of(n.op), to_string(n.b, depth + 1));
}

}  // namespace tutti
