#include "tutti/core/symfloat.h"

#include <algorithm>
#include <bit>
#include <ostream>

#include "tutti/core/error.h"
#include "tutti/core/sym_graph.h"

namespace tutti {
namespace {

SymGraph& graph_of_numbers() {
  SymGraph* graph = SymGraph::current();
  TUTTI_CHECK(graph != nullptr,
              "a number that depends on a symbolic size was used after its trace ended; such numbers cannot leave it");
  return *graph;
}

int64_t evaluate(SymOp op, SymFloat a, SymFloat b) {
  return evaluate_sym_op(op, std::bit_cast<int64_t>(a.value()), std::bit_cast<int64_t>(b.value()));
}

SymFloat binary(SymOp op, SymFloat a, SymFloat b) {
  if (!a.is_symbolic() && !b.is_symbolic()) return std::bit_cast<double>(evaluate(op, a, b));
  return SymFloat::of_node(graph_of_numbers().make(op, a.node(), b.node()));
}

SymBool compare(SymOp op, SymFloat a, SymFloat b) {
  if (!a.is_symbolic() && !b.is_symbolic()) return evaluate(op, a, b) != 0;
  return SymBool::of_node(graph_of_numbers().make(op, a.node(), b.node()));
}

}  // namespace

SymFloat::SymFloat(SymInt value) {
  if (value.is_symbolic()) *this = of_node(graph_of_numbers().make(SymOp::real_of, value.node(), value.node()));
  else value_ = static_cast<double>(value.value());
}

SymFloat SymFloat::of_node(int64_t node) {
  const SymNode& n = graph_of_numbers().node(node);
  SymFloat result;
  if (n.op == SymOp::real_constant) result.value_ = std::bit_cast<double>(n.a);
  else result.node_ = graph_of_numbers().name_of(node) - kFirstName;
  return result;
}

int64_t SymFloat::node() const {
  return is_symbolic() ? graph_of_numbers().named(kFirstName + node_) : graph_of_numbers().real_constant(value_);
}

double SymFloat::value() const {
  TUTTI_CHECK(
      !is_symbolic(),
      "the number {} is symbolic here, its value is not known while tracing; use it as a SymFloat, or guard_double()",
      to_string());
  return value_;
}

double SymFloat::guard_double() const {
  return is_symbolic() ? std::bit_cast<double>(graph_of_numbers().guard(node())) : value_;
}

std::string SymFloat::to_string() const {
  if (!is_symbolic()) return fmt::format("{}", value_);
  const SymGraph* graph = SymGraph::current();
  return graph != nullptr && graph->has_name(kFirstName + node_) ? graph->to_string(node())
                                                                 : "<number of an ended trace>";
}

std::ostream& operator<<(std::ostream& out, SymFloat value) { return out << value.to_string(); }

SymFloat operator+(SymFloat a, SymFloat b) { return binary(SymOp::real_add, a, b); }
SymFloat operator-(SymFloat a, SymFloat b) { return binary(SymOp::real_sub, a, b); }
SymFloat operator*(SymFloat a, SymFloat b) { return binary(SymOp::real_mul, a, b); }
SymFloat operator/(SymFloat a, SymFloat b) { return truediv(a, b); }
SymFloat operator-(SymFloat a) { return binary(SymOp::real_neg, a, a); }
SymBool operator==(SymFloat a, SymFloat b) { return compare(SymOp::real_eq, a, b); }
SymBool operator!=(SymFloat a, SymFloat b) { return compare(SymOp::real_ne, a, b); }
SymBool operator<(SymFloat a, SymFloat b) { return compare(SymOp::real_lt, a, b); }
SymBool operator<=(SymFloat a, SymFloat b) { return compare(SymOp::real_le, a, b); }
SymBool operator>(SymFloat a, SymFloat b) { return compare(SymOp::real_gt, a, b); }
SymBool operator>=(SymFloat a, SymFloat b) { return compare(SymOp::real_ge, a, b); }

SymFloat truediv(SymFloat a, SymFloat b) { return binary(SymOp::real_truediv, a, b); }
SymFloat truediv(SymInt a, SymInt b) {
  if (!a.is_symbolic() && !b.is_symbolic())
    return std::bit_cast<double>(evaluate_sym_op(SymOp::real_quotient, a.value(), b.value()));
  return SymFloat::of_node(graph_of_numbers().make(SymOp::real_quotient, a.node(), b.node()));
}
SymFloat floordiv(SymFloat a, SymFloat b) { return binary(SymOp::real_floordiv, a, b); }
SymFloat remainder(SymFloat a, SymFloat b) { return binary(SymOp::real_remainder, a, b); }
SymFloat fmod(SymFloat a, SymFloat b) { return binary(SymOp::real_fmod, a, b); }
SymFloat pow(SymFloat base, SymFloat exponent) { return binary(SymOp::real_pow, base, exponent); }
SymFloat minimum(SymFloat a, SymFloat b) { return binary(SymOp::real_minimum, a, b); }
SymFloat maximum(SymFloat a, SymFloat b) { return binary(SymOp::real_maximum, a, b); }
SymFloat sqrt(SymFloat a) { return binary(SymOp::real_sqrt, a, a); }

}  // namespace tutti

fmt::appender fmt::formatter<tutti::SymFloat>::format(tutti::SymFloat value, fmt::format_context& context) const {
  const std::string text = value.to_string();
  return std::copy(text.begin(), text.end(), context.out());
}
