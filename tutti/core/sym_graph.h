// The expressions behind symbolic sizes.
//
// One SymGraph belongs to one trace and is used by the thread that traces. Nodes are interned and in normal form
// (sym_form.h), so equal expressions compare by index. Folding happens when a node is made and uses the same number
// protocol as everything else.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tutti/core/sym_form.h"
#include "tutti/core/symint.h"

namespace tutti {

struct SymNode {
  SymOp op;
  int64_t a = 0, b = 0;  // operands as nodes; a constant's value or a symbol's index in `a`
};

// Values of SymInt::raw() below this are interned constants, shared by all threads; values from here on are names of
// nodes. The offset is arbitrary, so that a value that is not a size at all (an extreme int64, a tiny double) rarely
// looks like a node.
inline constexpr int64_t kFirstName = std::numeric_limits<int64_t>::min() + 0x2b7e1517;

class SymGraph {
 public:
  SymGraph();
  // The graph of the trace that is running on this thread, or null.
  static SymGraph* current();
  // Makes `graph` current for the lifetime of the scope.
  class Scope {
   public:
    explicit Scope(SymGraph& graph);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    SymGraph* previous_;
  };

  // A new symbol named `name` whose value in this trace is `hint`.
  SymInt symbol(std::string name, int64_t hint);
  int64_t constant(int64_t value);
  int64_t real_constant(double value);
  int64_t make(SymOp op, int64_t a, int64_t b);
  // The raw value that represents the node in a SymInt. Each graph starts its names at a different number, so that a
  // size that outlives its trace is detected in another one.
  int64_t name_of(int64_t index) const { return first_name_ + index; }
  bool has_name(int64_t word) const {
    return static_cast<uint64_t>(word) - static_cast<uint64_t>(first_name_) < nodes_.size();
  }
  // The node with that name. UsageError when it belongs to another graph.
  int64_t named(int64_t word) const;
  const SymNode& node(int64_t index) const { return nodes_.at(static_cast<size_t>(index)); }

  // The value of `expression` when symbol i has bindings[i]. Throws SymIntOverflow or IntegerDivideByZero.
  int64_t evaluate(SymInt expression, std::span<const int64_t> bindings) const;
  std::string to_string(int64_t index) const;  // deeply nested parts are printed as "..."

  // A fact that the trace relies on: a comparison node and its answer in the traced call.
  struct Guard {
    int64_t node;
    int64_t answer;
  };
  int64_t guard(int64_t node);  // evaluates the node at the hints and records the answer, once per node
  const std::vector<Guard>& guards() const { return guards_; }

  // The value in the traced call, without recording a guard.
  int64_t hint_of(SymInt expression) const { return evaluate(expression, hints_); }
  // Whether the node is a polynomial in the symbols, as opposed to a quotient, for example, which has the same value
  // for several sizes.
  bool is_polynomial(int64_t node) const;
  // Whether a symbol occurs in the node.
  bool depends_on(int64_t node, int64_t symbol) const;

 private:
  friend class SymValues;
  int64_t evaluate_node(int64_t index, std::span<const int64_t> bindings) const;
  std::string to_string(int64_t index, int depth) const;
  int64_t intern(SymOp op, int64_t a, int64_t b);
  std::optional<int64_t> simplified(SymOp op, int64_t a, int64_t b);
  int64_t node_of(const SymForm& form);
  const int64_t first_name_;
  std::vector<SymNode> nodes_;
  std::vector<SymForm> forms_;  // the normal form of each node
  std::vector<std::string> names_;
  std::vector<int64_t> hints_;
  std::map<std::tuple<SymOp, int64_t, int64_t>, int64_t> interned_;
  std::vector<Guard> guards_;
};

// The values of all expressions of a graph for one binding of its symbols. The graph must outlive this object.
class SymValues {
 public:
  SymValues(const SymGraph& graph, std::span<const int64_t> bindings);
  // Throws SymIntOverflow or IntegerDivideByZero when the expression has no value.
  int64_t operator()(SymInt expression) const;
  int64_t of_node(int64_t node) const;
  // Whether every guard of the graph has the same answer as in the trace.
  bool guards_hold() const;

 private:
  const SymGraph& graph_;
  std::vector<int64_t> bindings_, values_;
  std::vector<bool> has_value_;
};

// One checked operation of the number protocol; real operands and results are passed as the bits of doubles. SymInt,
// SymFloat and SymGraph share this definition.
int64_t evaluate_sym_op(SymOp op, int64_t a, int64_t b);

}  // namespace tutti
