#include "tutti/core/symint.h"

#include <algorithm>
#include <mutex>
#include <ostream>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/core/number.h"
#include "tutti/core/sym_graph.h"

namespace tutti {
namespace {

constexpr int64_t kTagBase = std::numeric_limits<int64_t>::min();

struct ConstantTable {
  std::mutex mutex;
  std::vector<int64_t> values;
};
ConstantTable& constants() {
  static ConstantTable table;
  return table;
}

SymGraph& running_graph() {
  SymGraph* graph = SymGraph::current();
  TUTTI_CHECK(graph != nullptr, "a symbolic size was used after its trace ended; sizes of a trace cannot leave it");
  return *graph;
}

SymInt binary(SymOp op, SymInt a, SymInt b) {
  if (!a.is_symbolic() && !b.is_symbolic()) [[likely]]
    return evaluate_sym_op(op, a.value(), b.value());
  return SymInt::of_node(running_graph().make(op, a.node(), b.node()));
}

}  // namespace

void throw_beyond_int64(uint64_t value) {
  throw UsageError(fmt::format(
      "the integer {} exceeds 9223372036854775807, the largest size and the largest number that an op takes; a "
      "difference of unsigned integers that falls below 0 becomes such a value",
      value));
}

int64_t SymInt::intern_constant(int64_t value) {
  ConstantTable& table = constants();
  std::lock_guard lock(table.mutex);
  for (size_t i = 0; i < table.values.size(); ++i) {
    if (table.values[i] == value) return kTagBase + static_cast<int64_t>(i);
  }
  TUTTI_CHECK(static_cast<int64_t>(table.values.size()) < kFirstName - kTagBase,
              "SymInt: more than {} distinct sizes near the smallest int64; such sizes cannot be real",
              kFirstName - kTagBase);
  table.values.push_back(value);
  return kTagBase + static_cast<int64_t>(table.values.size()) - 1;
}

bool SymInt::is_interned_constant() const { return rep_ < kFirstName; }

int64_t SymInt::slow_value() const {
  if (is_interned_constant()) {
    ConstantTable& table = constants();
    std::lock_guard lock(table.mutex);
    return table.values.at(static_cast<size_t>(rep_ - kTagBase));
  }
  throw UsageError(fmt::format(
      "the size {} is symbolic here, its integer is not known while tracing; use it as a SymInt, or guard_int()",
      to_string()));
}

SymInt SymInt::of_node(int64_t node) {
  SymInt result;
  result.rep_ = running_graph().name_of(node);
  const SymNode& n = running_graph().node(node);
  if (n.op == SymOp::constant) return n.a;
  return result;
}

int64_t SymInt::node() const { return is_symbolic() ? running_graph().named(rep_) : running_graph().constant(value()); }

int64_t SymInt::guard_int() const { return is_symbolic() ? running_graph().guard(node()) : value(); }

std::string SymInt::to_string() const {
  if (!is_symbolic()) return std::to_string(value());
  const SymGraph* graph = SymGraph::current();
  return graph != nullptr && graph->has_name(rep_) ? graph->to_string(node()) : "<symbol of an ended trace>";
}

bool SymBool::guard() const { return running_graph().guard(node_) != 0; }

SymBool SymInt::compare(SymOp op, SymInt a, SymInt b) {
  if (!a.is_symbolic() && !b.is_symbolic()) [[likely]]
    return evaluate_sym_op(op, a.value(), b.value()) != 0;
  const SymInt result = binary(op, a, b);
  return result.is_symbolic() ? SymBool::of_node(result.node()) : SymBool(result.value() != 0);
}

SymInt operator+(SymInt a, SymInt b) { return binary(SymOp::add, a, b); }
SymInt operator-(SymInt a, SymInt b) { return binary(SymOp::sub, a, b); }
SymInt operator*(SymInt a, SymInt b) { return binary(SymOp::mul, a, b); }
SymInt operator-(SymInt a) { return binary(SymOp::neg, a, a); }
std::ostream& operator<<(std::ostream& out, SymInt value) { return out << value.to_string(); }
SymInt floordiv(SymInt a, SymInt b) { return binary(SymOp::floordiv, a, b); }
SymInt truncdiv(SymInt a, SymInt b) { return binary(SymOp::truncdiv, a, b); }
SymInt remainder(SymInt a, SymInt b) { return binary(SymOp::remainder, a, b); }
SymInt fmod(SymInt a, SymInt b) { return binary(SymOp::fmod, a, b); }
SymInt pow(SymInt base, SymInt exponent) { return binary(SymOp::pow, base, exponent); }
SymInt minimum(SymInt a, SymInt b) { return binary(SymOp::minimum, a, b); }
SymInt maximum(SymInt a, SymInt b) { return binary(SymOp::maximum, a, b); }

}  // namespace tutti

fmt::appender fmt::formatter<tutti::SymInt>::format(tutti::SymInt value, fmt::format_context& context) const {
  const std::string text = value.to_string();
  return std::copy(text.begin(), text.end(), context.out());
}
