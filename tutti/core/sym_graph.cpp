#include "tutti/core/sym_graph.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/core/number.h"
#include "tutti/core/scalar_eval.h"

namespace tutti {
namespace {

thread_local SymGraph* current_graph = nullptr;

// A shared node is written once for each use, so text grows exponentially with depth.
constexpr int kDeepestText = 8;

const char* symbol_of(SymOp op) {
  static constexpr const char* names[] = {"",    "",    "+",   "-",  "*",  "-",  "//", "truncdiv", "%",  "fmod",
                                          "**",  "min", "max", "==", "!=", "<",  "<=", ">",        ">=",  // of integers
                                          "==",  "!=",  "<",   "<=", ">",  ">=",                          // of reals
                                          "",    "",    "/",  // from integers
                                          "+",   "-",   "*",   "-",  "/",  "//", "%",  "fmod",     "**", "min",
                                          "max", "sqrt"};
  return names[static_cast<int>(op)];
}

}  // namespace

// The operation of eager f64 kernels.
static ScalarOp scalar_op_of(SymOp op) {
  switch (op) {
    case SymOp::real_eq:
      return ScalarOp::eq;
    case SymOp::real_ne:
      return ScalarOp::ne;
    case SymOp::real_lt:
      return ScalarOp::lt;
    case SymOp::real_le:
      return ScalarOp::le;
    case SymOp::real_gt:
      return ScalarOp::gt;
    case SymOp::real_ge:
      return ScalarOp::ge;
    case SymOp::real_add:
      return ScalarOp::add;
    case SymOp::real_sub:
      return ScalarOp::sub;
    case SymOp::real_mul:
      return ScalarOp::mul;
    case SymOp::real_neg:
      return ScalarOp::neg;
    case SymOp::real_truediv:
      return ScalarOp::truediv;
    case SymOp::real_floordiv:
      return ScalarOp::floordiv;
    case SymOp::real_remainder:
      return ScalarOp::remainder;
    case SymOp::real_fmod:
      return ScalarOp::fmod;
    case SymOp::real_sqrt:
      return ScalarOp::sqrt;
    default:
      throw InternalError("sym_graph: not an operation of reals");
  }
}

static int64_t evaluate_real(SymOp op, int64_t a, int64_t b) {
  if (op == SymOp::real_of) return std::bit_cast<int64_t>(static_cast<double>(a));
  if (op == SymOp::real_quotient) {
    if (b == 0) throw IntegerDivideByZero("truediv");
    return std::bit_cast<int64_t>(truediv_i64(a, b));
  }
  const double x = std::bit_cast<double>(a), y = std::bit_cast<double>(b);
  const bool divides = op >= SymOp::real_truediv && op <= SymOp::real_fmod;
  if (divides && y == 0) throw IntegerDivideByZero(symbol_of(op));
  // A NaN operand gives NaN.
  if (op == SymOp::real_minimum) return std::bit_cast<int64_t>(y < x || std::isnan(y) ? y : x);
  if (op == SymOp::real_maximum) return std::bit_cast<int64_t>(y > x || std::isnan(y) ? y : x);
  if (op == SymOp::real_pow) return std::bit_cast<int64_t>(std::pow(x, y));
  const ScalarValue operands[] = {{DType::f64, x}, {DType::f64, y}};
  const int count = op == SymOp::real_neg || op == SymOp::real_sqrt ? 1 : 2;
  const auto result =
      evaluate_scalar(scalar_op_of(op), is_comparison(op) ? DType::boolean : DType::f64, operands, count);
  TUTTI_ASSERT(result, "sym_graph: '{}' of reals does not fold", symbol_of(op));
  return is_comparison(op) ? result->i : std::bit_cast<int64_t>(result->f);
}

// Names come round again after 2048 graphs, and a graph of more than 2^20 nodes goes on into the names of the next.
static int64_t next_first_name() {
  static std::atomic<int64_t> graphs{0};
  return kFirstName + ((graphs++ % 2048) << 20);
}

SymGraph::SymGraph() : first_name_(next_first_name()) {}

int64_t SymGraph::named(int64_t word) const {
  TUTTI_CHECK(
      has_name(word),
      "a symbolic size was used in another trace than its own, which has ended; sizes of a trace cannot leave it");
  return word - first_name_;
}

SymGraph* SymGraph::current() { return current_graph; }

SymGraph::Scope::Scope(SymGraph& graph) : previous_(std::exchange(current_graph, &graph)) {}
SymGraph::Scope::~Scope() { current_graph = previous_; }

int64_t evaluate_sym_op(SymOp op, int64_t a, int64_t b) {
  switch (op) {
    case SymOp::constant:
    case SymOp::symbol:
      break;
    case SymOp::add:
      return checked_add(a, b);
    case SymOp::sub:
      return checked_sub(a, b);
    case SymOp::mul:
      return checked_mul(a, b);
    case SymOp::neg:
      return checked_neg(a);
    case SymOp::floordiv:
      return checked_floordiv(a, b);
    case SymOp::truncdiv:
      return checked_truncdiv(a, b);
    case SymOp::remainder:
      if (b == 0) throw IntegerDivideByZero("remainder");
      return remainder_i64(a, b);
    case SymOp::fmod:
      if (b == 0) throw IntegerDivideByZero("fmod");
      return fmod_i64(a, b);
    case SymOp::pow:
      return checked_pow(a, b);
    case SymOp::minimum:
      return std::min(a, b);
    case SymOp::maximum:
      return std::max(a, b);
    case SymOp::eq:
      return a == b;
    case SymOp::ne:
      return a != b;
    case SymOp::lt:
      return a < b;
    case SymOp::le:
      return a <= b;
    case SymOp::gt:
      return a > b;
    case SymOp::ge:
      return a >= b;
    case SymOp::real_constant:
      break;
    default:
      return evaluate_real(op, a, b);
  }
  throw InternalError("evaluate_sym_op: a leaf has no operation");
}

SymInt SymGraph::symbol(std::string name, int64_t hint) {
  Scope scope(*this);
  names_.push_back(std::move(name));
  hints_.push_back(hint);
  return SymInt::of_node(intern(SymOp::symbol, static_cast<int64_t>(names_.size()) - 1, 0));
}

int64_t SymGraph::real_constant(double value) { return intern(SymOp::real_constant, std::bit_cast<int64_t>(value), 0); }

int64_t SymGraph::constant(int64_t value) { return intern(SymOp::constant, value, 0); }

int64_t SymGraph::intern(SymOp op, int64_t a, int64_t b) {
  const auto [it, inserted] = interned_.try_emplace({op, a, b}, nodes_.size());
  if (!inserted) return it->second;
  nodes_.push_back({op, a, b});
  forms_.push_back(op == SymOp::constant ? SymForm::of_constant(a) : SymForm::of_factor(it->second));
  return it->second;
}

int64_t SymGraph::node_of(const SymForm& form) {
  const auto step = [&](SymOp op, int64_t a, int64_t b, SymForm part) {
    const int64_t node = intern(op, a, b);
    forms_[static_cast<size_t>(node)] = std::move(part);
    return node;
  };
  // What is added first, then what is taken away: y - x has a value where -x + y would have none on the way.
  SymForm so_far;
  int64_t sum = -1;
  const auto append = [&](int64_t node, bool take_away, const SymForm& part) {
    so_far = *add(so_far, part, take_away ? -1 : 1);
    sum = sum >= 0    ? step(take_away ? SymOp::sub : SymOp::add, sum, node, so_far)
          : take_away ? step(SymOp::neg, node, node, so_far)
                      : node;
  };
  const auto append_terms = [&](bool negative) {
    for (const SymForm::Term& t : form.terms) {
      const bool take_away = t.coefficient < 0 && t.coefficient != std::numeric_limits<int64_t>::min();
      if (take_away != negative) continue;
      SymForm part = SymForm::of_factor(t.factors[0]);
      int64_t product = t.factors[0];
      for (size_t i = 1; i < t.factors.size(); ++i) {
        part.terms[0].factors.push_back(t.factors[i]);
        product = step(SymOp::mul, product, t.factors[i], part);
      }
      part.terms[0].coefficient = negative ? -t.coefficient : t.coefficient;
      if (part.terms[0].coefficient != 1)
        product = step(SymOp::mul, product, constant(part.terms[0].coefficient), part);
      append(product, negative, part);
    }
  };
  if (form.is_constant()) return constant(form.constant);
  append_terms(false);
  if (form.constant != 0) append(constant(form.constant), false, SymForm::of_constant(form.constant));
  append_terms(true);
  return sum;
}

// Nothing when no rule speaks of it. Each rule holds for all values that its condition admits; a condition on values is
// made a guard.
std::optional<int64_t> SymGraph::simplified(SymOp op, int64_t a, int64_t b) {
  const SymForm fa = forms_[static_cast<size_t>(a)], fb = forms_[static_cast<size_t>(b)];
  const auto made = [&](const std::optional<SymForm>& form) -> std::optional<int64_t> {
    if (!form) return std::nullopt;
    return node_of(*form);
  };
  switch (op) {
    case SymOp::add:
      return made(add(fa, fb, 1));
    case SymOp::sub:
      return made(add(fa, fb, -1));
    case SymOp::neg:
      return made(multiply(fa, SymForm::of_constant(-1)));
    case SymOp::mul: {
      // A sum that is multiplied is one factor.
      const auto factor = [](const SymForm& form, int64_t node) {
        return form.is_constant() || form.is_product() ? form : SymForm::of_factor(node);
      };
      if (auto form = multiply(fa, fb)) return node_of(*form);
      return made(multiply(factor(fa, a), factor(fb, b)));
    }
    case SymOp::floordiv:
    case SymOp::truncdiv:
    case SymOp::remainder:
    case SymOp::fmod: {
      // Exact division, when the divisor is not 0.
      const auto quotient = divide_exactly(fa, fb);
      if (!quotient) return std::nullopt;
      if (!fb.is_constant() && guard(make(SymOp::ne, b, constant(0))) == 0) return std::nullopt;
      return op == SymOp::floordiv || op == SymOp::truncdiv ? node_of(*quotient) : constant(0);
    }
    case SymOp::minimum:
    case SymOp::maximum:
      return a == b ? std::optional(a) : std::nullopt;
    case SymOp::eq:
    case SymOp::ne:
    case SymOp::lt:
    case SymOp::le:
    case SymOp::gt:
    case SymOp::ge: {
      const auto difference = add(fa, fb, -1);
      if (!difference || !difference->is_constant()) return std::nullopt;
      return constant(evaluate_sym_op(op, difference->constant, 0));
    }
    default:
      return std::nullopt;
  }
}

int64_t SymGraph::make(SymOp op, int64_t a, int64_t b) {
  if (is_constant(node(a).op) && is_constant(node(b).op)) {
    const int64_t value = evaluate_sym_op(op, node(a).a, node(b).a);
    return is_real(op) ? intern(SymOp::real_constant, value, 0) : constant(value);
  }
  if (const auto simple = simplified(op, a, b)) return *simple;
  return intern(op, a, b);
}

// Operands come before their users, so one pass down finds the nodes that matter and one pass up computes them: linear
// in the graph however often a node is shared, and no recursion.
int64_t SymGraph::evaluate_node(int64_t index, std::span<const int64_t> bindings) const {
  std::vector<char> needed(static_cast<size_t>(index) + 1, 0);
  std::vector<int64_t> values(needed.size(), 0);
  needed[static_cast<size_t>(index)] = 1;
  const auto is_leaf = [](const SymNode& n) { return is_constant(n.op) || n.op == SymOp::symbol; };
  for (size_t i = needed.size(); i-- > 0;) {
    if (!needed[i] || is_leaf(nodes_[i])) continue;
    needed[static_cast<size_t>(nodes_[i].a)] = needed[static_cast<size_t>(nodes_[i].b)] = 1;
  }
  for (size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) continue;
    const SymNode& n = nodes_[i];
    if (is_constant(n.op)) {
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
  return expression.is_symbolic() ? evaluate_node(named(expression.raw()), bindings) : expression.value();
}

int64_t SymGraph::guard(int64_t index) {
  for (const Guard& g : guards_) {
    if (g.node == index) return g.answer;
  }
  const int64_t answer = evaluate_node(index, hints_);
  guards_.push_back({index, answer});
  return answer;
}

bool SymGraph::is_polynomial(int64_t index) const {
  for (const SymForm::Term& t : forms_[static_cast<size_t>(index)].terms) {
    for (const int64_t factor : t.factors) {
      if (node(factor).op != SymOp::symbol) return false;
    }
  }
  return !is_real(node(index).op);
}

bool SymGraph::depends_on(int64_t index, int64_t symbol) const {
  std::vector<char> found(static_cast<size_t>(index) + 1, 0);
  for (size_t i = 0; i < found.size(); ++i) {
    const SymNode& n = nodes_[i];
    if (n.op == SymOp::symbol) found[i] = n.a == symbol;
    else if (!is_constant(n.op)) found[i] = found[static_cast<size_t>(n.a)] | found[static_cast<size_t>(n.b)];
  }
  return found.back() != 0;
}

SymValues::SymValues(const SymGraph& graph, std::span<const int64_t> bindings)
    : graph_(graph),
      bindings_(bindings.begin(), bindings.end()),
      values_(graph.nodes_.size(), 0),
      has_value_(graph.nodes_.size(), false) {
  // Operands come before their users.
  for (size_t i = 0; i < values_.size(); ++i) {
    const SymNode& n = graph.nodes_[i];
    const auto a = static_cast<size_t>(n.a), b = static_cast<size_t>(n.b);
    const bool is_leaf = is_constant(n.op) || n.op == SymOp::symbol;
    if (!is_leaf && !(has_value_[a] && has_value_[b])) continue;
    if (n.op == SymOp::symbol && a >= bindings_.size()) continue;
    try {
      values_[i] = is_constant(n.op)       ? n.a
                   : n.op == SymOp::symbol ? bindings_[a]
                                           : evaluate_sym_op(n.op, values_[a], values_[b]);
      has_value_[i] = true;
    } catch (const Error&) {  // whoever needs the value is told then
    }
  }
}

int64_t SymValues::operator()(SymInt expression) const {
  return expression.is_symbolic() ? of_node(graph_.named(expression.raw())) : expression.value();
}

int64_t SymValues::of_node(int64_t node) const {
  const auto i = static_cast<size_t>(node);
  return has_value_.at(i) ? values_[i] : graph_.evaluate_node(node, bindings_);
}

bool SymValues::guards_hold() const {
  for (const SymGraph::Guard& g : graph_.guards()) {
    const auto i = static_cast<size_t>(g.node);
    if (!has_value_[i] || values_[i] != g.answer) return false;
  }
  return true;
}

std::string SymGraph::to_string(int64_t index) const { return to_string(index, 0); }

std::string SymGraph::to_string(int64_t index, int depth) const {
  const SymNode& n = node(index);
  if (n.op == SymOp::constant) return std::to_string(n.a);
  if (n.op == SymOp::real_constant) return fmt::format("{}", std::bit_cast<double>(n.a));
  if (n.op == SymOp::real_of) return to_string(n.a, depth);
  if (n.op == SymOp::symbol) return names_[static_cast<size_t>(n.a)];
  if (depth == kDeepestText) return "...";
  if (n.op == SymOp::real_sqrt) return fmt::format("sqrt({})", to_string(n.a, depth + 1));
  if (n.op == SymOp::neg || n.op == SymOp::real_neg) return fmt::format("-{}", to_string(n.a, depth + 1));
  return fmt::format("({} {} {})", to_string(n.a, depth + 1), symbol_of(n.op), to_string(n.b, depth + 1));
}

}  // namespace tutti
