// The expressions behind symbolic sizes.
//
// One SymGraph belongs to one trace and is used by the thread that traces. Nodes are interned: the same operation on
// the same operands is the same node, so equal expressions compare by index. Folding happens when a node is made and
// uses the same number protocol as everything else.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "tutti/core/symint.h"

namespace tutti {

struct SymNode {
  SymOp op;
  int64_t a = 0, b = 0;  // operands as nodes; a constant's value or a symbol's index in `a`
};

class SymGraph {
 public:
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
  int64_t make(SymOp op, int64_t a, int64_t b);
  const SymNode& node(int64_t index) const { return nodes_.at(static_cast<size_t>(index)); }

  // The value of `expression` when symbol i has bindings[i]. Throws SymIntOverflow or IntegerDivideByZero.
  int64_t evaluate(SymInt expression, std::span<const int64_t> bindings) const;
  std::string to_string(int64_t index) const;  // deep parts as "..."

  // A fact that the trace relied on: comparison node and the answer given.
  struct Guard {
    int64_t node;
    int64_t answer;
  };
  int64_t guard(int64_t node);  // evaluates at the hints and records
  const std::vector<Guard>& guards() const { return guards_; }

 private:
  int64_t evaluate_node(int64_t index, std::span<const int64_t> bindings) const;
  std::string to_string(int64_t index, int depth) const;
  std::vector<SymNode> nodes_;
  std::vector<std::string> names_;
  std::vector<int64_t> hints_;
  std::map<std::tuple<SymOp, int64_t, int64_t>, int64_t> interned_;
  std::vector<Guard> guards_;
};

// One integer operation of the protocol, checked. The single definition that SymInt and SymGraph share.
int64_t evaluate_sym_op(SymOp op, int64_t a, int64_t b);

}  // namespace tutti
