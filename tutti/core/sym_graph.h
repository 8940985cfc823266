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

// Words below this are interned constants (the same for all threads), from here on names of nodes. An odd place, so that a
// word which is no size does not look like a node by chance: neither an extreme of int64 nor a tiny double.
inline constexpr int64_t kFirstName = std::numeric_limits<int64_t>::min() + 0x2b7e1517;

class SymGraph {
 public:
  SymGraph();
  // The graph of the running trace on this thread, or null.
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
  // The word that names the node in a SymInt. Graphs name theirs from different places on, so that a size which outlived its
  // trace is found out in another one.
  int64_t name_of(int64_t index) const { return first_name_ + index; }
  bool has_name(int64_t word) const { return static_cast<uint64_t>(word) - static_cast<uint64_t>(first_name_) < nodes_.size(); }
  // The node of that name; UsageError when it is another graph's.
  int64_t named(int64_t word) const;
  const SymNode& node(int64_t index) const { return nodes_.at(static_cast<size_t>(index)); }

  // The value of `expression` when symbol i has bindings[i]. Throws SymIntOverflow or IntegerDivideByZero.
  int64_t evaluate(SymInt expression, std::span<const int64_t> bindings) const;
  std::string to_string(int64_t index) const;  // deep parts as "..."

  // A fact that the trace relied on: comparison node and the answer given.
  struct Guard {
    int64_t node;
    int64_t answer;
  };
  int64_t guard(int64_t node);  // evaluates at the hints and records, each node once
  const std::vector<Guard>& guards() const { return guards_; }

  // The value in this trace, without a guard.
  int64_t hint_of(SymInt expression) const { return evaluate(expression, hints_); }
  // Whether the node is a sum of products of symbols, which a value fixes; quotients and the like have it for several sizes.
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
  std::vector<SymForm> forms_;  // of the nodes
  std::vector<std::string> names_;
  std::vector<int64_t> hints_;
  std::map<std::tuple<SymOp, int64_t, int64_t>, int64_t> interned_;
  std::vector<Guard> guards_;
};

// The values of all expressions of a graph for one binding of its symbols. The graph outlives it.
class SymValues {
 public:
  SymValues(const SymGraph& graph, std::span<const int64_t> bindings);
  // Throws SymIntOverflow or IntegerDivideByZero when the expression has no value.
  int64_t operator()(SymInt expression) const;
  int64_t of_node(int64_t node) const;
  // Whether every guard of the graph has the answer it had in the trace.
  bool guards_hold() const;

 private:
  const SymGraph& graph_;
  std::vector<int64_t> bindings_, values_;
  std::vector<bool> has_value_;
};

// One operation of the protocol, checked; real operands and results as bits. The single definition that SymInt, SymFloat and
// SymGraph share.
int64_t evaluate_sym_op(SymOp op, int64_t a, int64_t b);

}  // namespace tutti
