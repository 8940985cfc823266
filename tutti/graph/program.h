// Program: the recorded calls of a trace with symbolic sizes, which can be traced again for other sizes without running
// the function.
//
// While a program is recorded, sizes of the trace's tensors are symbolic expressions, and each tensor stands for a
// concrete tensor of the traced call. Whatever the function, an op or a gradient asks about sizes is answered for the
// traced call and recorded as a guard; questions about strides are recorded as facts. For other sizes the program
// stands for the same calls as long as guards and facts hold. Recorded by one thread; immutable afterwards.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "tutti/core/sym_graph.h"
#include "tutti/plan/graph.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::graph {

class Trace;

// The function cannot be traced with symbolic sizes; it is then traced again without them.
class NotSymbolic : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Attrs with every symbolic size as an integer.
Attrs with_values(const Attrs& attrs, const SymGraph& symbols, FunctionRef<int64_t(SymInt)> value_of);

class Program {
 public:
  // Tensors stand for what the trace knows by their number, or, with memory of their own, for themselves.
  struct Call {
    const OpDef* op;
    Attrs attrs;
    std::vector<Tensor> inputs, outputs;  // outputs: undefined where an input is written in place
    Origin origin;
  };
  struct Fact {
    Tensor of;
    TensorQuestion question;
    Shape about;
    bool answer;
  };
  // A check(), which is no call of an op.
  struct Check {
    std::shared_ptr<const ControlBody> body;
    Tensor condition;
    Origin origin;
  };
  // A cotangent for `of`.
  struct Later {
    Tensor of, made;
    DType dtype;
  };
  using Item = std::variant<Call, Fact, Check, Later>;

  // ---- while recording ----
  // A tensor of the trace that stands for `called` with these sizes.
  Tensor add(const Tensor& called, const Shape& sizes);
  // The tensor that `t` stands for in the traced call: itself when it has memory. Throws NotSymbolic for a tensor that
  // no op made.
  Tensor as_called(const Tensor& t) const;
  void append(Item item);
  bool decide(const Tensor& t, TensorQuestion question, const Shape& about);
  // Guards since the last time were asked for by `where`.
  void note_guards(const std::string& where);
  [[noreturn]] void refuse(const std::string& reason);
  // Items from here on belong to the backward.
  void begin_backward() { forward_items_ = items_.size(); }

  SymGraph& symbols() { return symbols_; }
  const SymGraph& symbols() const { return symbols_; }
  // Why the function cannot be followed; empty when it can.
  const std::string& refusal() const { return refusal_; }
  const std::string& place_of_guard(size_t guard) const { return guard_places_[guard]; }
  // A guard that leaves symbol `index` one value, in words; empty when there is none.
  std::string what_fixes(int64_t index) const;

  // ---- afterwards ----
  // Traces the calls again. The first tensors of the program are `arguments`, in order, each once.
  class Replay {
   public:
    Replay(const Program& program, Trace& trace, const SymValues& values, std::span<const Tensor> arguments);
    // False when a fact does not hold for these sizes.
    bool forward();
    bool backward();
    // The tensor that stands in this trace for `t` of the recorded one.
    Tensor at(const Tensor& t) const;

   private:
    bool run(size_t begin, size_t end);
    bool run(const Call& call);
    bool run(const Fact& fact);
    bool run(const Check& check);
    bool run(const Later& later);
    const Program& program_;
    Trace& trace_;
    const SymValues& values_;
    std::vector<Tensor> tensors_;  // by number
  };

 private:
  SymGraph symbols_;
  std::vector<Item> items_;
  size_t forward_items_ = 0;
  std::vector<Tensor> called_;  // by number
  std::vector<std::string> guard_places_;
  std::string refusal_;
};

}  // namespace tutti::graph
