#include "tutti/graph/program.h"

#include <algorithm>

#include "tutti/graph/trace.h"
#include "tutti/ops/engine/dispatch.h"

namespace tutti::graph {

Attrs with_values(const Attrs& attrs, const SymGraph& symbols, FunctionRef<int64_t(SymInt)> value_of) {
  Attrs result = attrs;
  result.map_sizes([&](SymInt size) { return symbols.has_name(size.raw()) ? SymInt(value_of(size)) : size; });
  return result;
}

Tensor Program::add(const Tensor& called, const Shape& sizes) {
  Tensor t = called.alias();
  t.impl()->sizes = sizes;
  t.impl()->traced = static_cast<int32_t>(called_.size());
  called_.push_back(called);
  return t;
}

Tensor Program::as_called(const Tensor& t) const {
  const int32_t number = t.impl()->traced;
  return number < 0 ? t : called_.at(static_cast<size_t>(number));
}

void Program::append(Item item) { items_.push_back(std::move(item)); }

bool Program::decide(const Tensor& t, TensorQuestion question, const Shape& about) {
  const auto hint = [&](SymInt s) { return symbols_.hint_of(s); };
  Shape known;
  for (const SymInt s : about) known.push_back(hint(s));
  const bool answer = question(as_called(t), known);
  append(Fact{t.alias(), question, about, answer});
  return answer;
}

void Program::note_guards(const std::string& where) { guard_places_.resize(symbols_.guards().size(), where); }

void Program::refuse(const std::string& reason) {
  refusal_ = reason;
  throw NotSymbolic(reason);
}

std::string Program::what_fixes(int64_t index) const {
  for (size_t i = 0; i < symbols_.guards().size(); ++i) {
    const SymGraph::Guard& g = symbols_.guards()[i];
    if (!symbols_.depends_on(g.node, index)) continue;
    const SymNode& n = symbols_.node(g.node);
    const bool is_truth = is_comparison(n.op);
    int64_t fixed = g.node;
    if (is_truth) {
      const bool a_is_known = symbols_.node(n.a).op == SymOp::constant,
                 b_is_known = symbols_.node(n.b).op == SymOp::constant;
      if (n.op != SymOp::eq || g.answer == 0 || a_is_known == b_is_known) continue;
      fixed = a_is_known ? n.b : n.a;
    }
    if (!symbols_.is_polynomial(fixed)) continue;
    const std::string text = symbols_.to_string(g.node);
    return fmt::format("{} asks for {}", guard_places_[i],
                       is_truth ? text : fmt::format("the integer {} = {}", text, g.answer));
  }
  return "";
}

Program::Replay::Replay(const Program& program, Trace& trace, const SymValues& values,
                        std::span<const Tensor> arguments)
    : program_(program), trace_(trace), values_(values), tensors_(program.called_.size()) {
  size_t number = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto is_it = [&](const Tensor& t) { return t.is_same(arguments[i]); };
    if (std::none_of(arguments.begin(), arguments.begin() + static_cast<std::ptrdiff_t>(i), is_it))
      tensors_[number++] = arguments[i];
  }
}

bool Program::Replay::forward() { return run(0, program_.forward_items_); }
bool Program::Replay::backward() { return run(program_.forward_items_, program_.items_.size()); }

Tensor Program::Replay::at(const Tensor& t) const {
  const int32_t number = t.defined() ? t.impl()->traced : -1;
  return number < 0 ? t : tensors_[static_cast<size_t>(number)];
}

bool Program::Replay::run(size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    if (!std::visit([&](const auto& item) { return run(item); }, program_.items_[i])) return false;
  }
  return true;
}

bool Program::Replay::run(const Call& call) {
  std::vector<Tensor> inputs, outputs(call.outputs.size());
  for (const Tensor& t : call.inputs) inputs.push_back(at(t));
  const Attrs attrs = with_values(call.attrs, program_.symbols_, [&](SymInt s) { return values_(s); });
  trace_.repeat({*call.op, inputs, attrs}, outputs, call.origin);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (call.outputs[k].defined()) tensors_[static_cast<size_t>(call.outputs[k].impl()->traced)] = outputs[k];
  }
  return true;
}

bool Program::Replay::run(const Fact& fact) {
  Shape about;
  for (const SymInt s : fact.about) about.push_back(values_(s));
  return fact.question(at(fact.of), about) == fact.answer;
}

bool Program::Replay::run(const Check& check) {
  trace_.repeat_check(check.body, at(check.condition), check.origin);
  return true;
}

bool Program::Replay::run(const Later& later) {
  const Tensor of = at(later.of);
  tensors_[static_cast<size_t>(later.made.impl()->traced)] = trace_.add_later(of.extents(), later.dtype, of.device());
  return true;
}

}  // namespace tutti::graph
