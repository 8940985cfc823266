#include "tutti/io/chat_template/interpreter.h"
#include "tutti/io/chat_template/loop_state.h"
#include "tutti/io/chat_template/value_text.h"

namespace tutti::jinja {
namespace {

// A level of recursion takes up to about one KiB of the stack, ten times that with a sanitizer.
constexpr int kMostDepth = 600;

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_)
    if (const auto found = scope->variables_.find(name); found != scope->variables_.end()) return &found->second;
  return nullptr;
}

void Scope::set(std::string_view name, Value value) { variables_.insert_or_assign(name, std::move(value)); }

Interpreter::Level::Level(Interpreter& its_interpreter) : interpreter(its_interpreter) {
  if (++interpreter.depth_ > kMostDepth) {
    --interpreter.depth_;
    interpreter.meter_.fail("macros call each other too deeply: {} levels of the template are open", kMostDepth);
  }
}

Interpreter::Interpreter(const Template& parsed, const Scope& variables, const std::tm& now)
    : template_(parsed), meter_(parsed.name, parsed.limits), root_(&variables), now_(now) {}

Interpreter::~Interpreter() {
  for (const auto& names : namespaces_) names->entries.clear();
}

Value Interpreter::make_namespace() {
  meter_.values(namespaces_.size() + 1);
  namespaces_.push_back(std::make_shared<Namespace>());
  return namespaces_.back();
}

MarkedText Interpreter::run() {
  try {
    MarkedText output;
    execute(template_.body, root_, output);
    return output;
  } catch (const NestingTooDeep&) {
    meter_.fail("lists and dicts are nested more than {} deep", kMostNesting);
  }
}

void Interpreter::print(const MarkedText& text, MarkedText& output) {
  meter_.limit_text(output.size() + text.size());
  output.append(text);
}

Interpreter::Flow Interpreter::execute(const Block& block, Scope& scope, MarkedText& output) {
  for (const Statement& statement : block)
    if (const Flow flow = execute(statement, scope, output); flow != Flow::next) return flow;
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const Statement& statement, Scope& scope, MarkedText& output) {
  const Level level(*this);
  meter_.line = statement.line;
  meter_.step();
  switch (statement.kind) {
    case StatementKind::data:
      meter_.text(statement.text.size());
      meter_.limit_text(output.size() + statement.text.size());
      output.append(statement.text);
      break;
    case StatementKind::output:
      print(to_text(evaluate(*statement.expressions[0], scope), meter_), output);
      break;
    case StatementKind::set:
      assign(statement.targets, statement.is_tuple, evaluate(*statement.expressions[0], scope), scope);
      break;
    case StatementKind::set_block:
      assign(statement.targets, false, filtered(statement.expressions[0].get(), capture(statement.body, scope), scope),
             scope);
      break;
    case StatementKind::filter_block:
      print(to_text(filtered(statement.expressions[0].get(), capture(statement.body, scope), scope), meter_), output);
      break;
    case StatementKind::generation: {
      MarkedText said = capture(statement.body, scope);
      said.mark(kAssistant);
      print(said, output);
      break;
    }
    case StatementKind::macro:
      scope.set(statement.text, Callable{.name = statement.text, .macro = &statement});
      break;
    case StatementKind::for_:
      return execute_for(statement, scope, output);
    case StatementKind::if_:
      return execute_if(statement, scope, output);
    case StatementKind::with:
      return execute_with(statement, scope, output);
    case StatementKind::break_:
      return Flow::break_;
    case StatementKind::continue_:
      return Flow::continue_;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::execute_if(const Statement& choice, Scope& scope, MarkedText& output) {
  for (const Branch& branch : choice.branches)
    if (branch.condition == nullptr || evaluate(*branch.condition, scope).is_true())
      return execute(branch.body, scope, output);
  return Flow::next;
}

Interpreter::Flow Interpreter::execute_with(const Statement& with, Scope& scope, MarkedText& output) {
  Scope inner(&scope);
  for (size_t i = 0; i < with.targets.size(); ++i)
    inner.set(with.targets[i].name, evaluate(*with.expressions[i], scope));
  return execute(with.body, inner, output);
}

Interpreter::Flow Interpreter::execute_for(const Statement& loop, Scope& scope, MarkedText& output) {
  const std::vector<Value> items = iterate(evaluate(*loop.expressions[0], scope), meter_);
  const Expression* condition = loop.expressions[1].get();
  auto state = std::make_shared<LoopState>();
  state->depth = ++loops_;
  state->pull = [&, next = size_t{0}]() mutable -> std::optional<Value> {
    while (next < items.size()) {
      const Value& item = items[next++];
      if (condition == nullptr) return item;
      Scope tested(&scope);
      assign(loop.targets, loop.is_tuple, item, tested);
      if (evaluate(*condition, tested).is_true()) return item;
    }
    return std::nullopt;
  };
  // The loop may be left by an exception, and `loop` may outlive it in a namespace.
  const struct Ended {
    Interpreter& interpreter;
    LoopState& state;
    ~Ended() {
      --interpreter.loops_;
      state.pull = [] { return std::nullopt; };
    }
  } ended{*this, *state};
  bool is_empty = true;
  while (state->advance()) {
    is_empty = false;
    meter_.step();
    Scope inner(&scope);
    inner.set("loop", state);
    assign(loop.targets, loop.is_tuple, *state->current, inner);
    if (execute(loop.body, inner, output) == Flow::break_) break;
  }
  return is_empty && !loop.branches.empty() ? execute(loop.branches[0].body, scope, output) : Flow::next;
}

MarkedText Interpreter::capture(const Block& block, const Scope& scope) {
  Scope inner(&scope);
  MarkedText captured;
  execute(block, inner, captured);
  meter_.text(captured.size());
  return captured;
}

Value Interpreter::filtered(const Expression* filter, Value value, Scope& scope) {
  if (filter == nullptr) return value;
  const Expression* operand = filter->parts[0].get();
  const Value inner = filtered(operand, std::move(value), scope);
  meter_.line = filter->line;
  return filter->builtin(*this, inner, evaluate_arguments(*filter, scope));
}

void Interpreter::assign(const std::vector<Target>& targets, bool is_tuple, const Value& value, Scope& scope) {
  const auto assign_one = [&](const Target& target, const Value& part) {
    if (target.attribute.empty()) return scope.set(target.name, part);
    const Value* names = scope.find(target.name);
    if (names == nullptr || names->names() == nullptr)
      meter_.fail("'{}' is no namespace, whose attributes alone can be assigned to", target.name);
    if (target.attribute.starts_with('_'))
      meter_.fail("the attribute '{}' of a namespace begins with an underscore", target.attribute);
    names->names()->set(target.attribute, part);
  };
  if (!is_tuple) return assign_one(targets[0], value);
  const std::vector<Value> parts = iterate(value, meter_);
  if (parts.size() != targets.size())
    meter_.fail("{} values are assigned to {} variables", parts.size(), targets.size());
  for (size_t i = 0; i < parts.size(); ++i) assign_one(targets[i], parts[i]);
}

Value Interpreter::call_macro(const Statement& macro, const Arguments& arguments) {
  const Level level(*this);
  Scope scope(&root_);
  const size_t count = macro.targets.size();
  if (arguments.positional.size() > count)
    meter_.fail("the macro '{}' takes {} arguments, not {}", macro.text, count, arguments.positional.size());
  std::vector<const Value*> given(count);
  for (size_t i = 0; i < arguments.positional.size(); ++i) given[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.keywords) {
    size_t i = 0;
    while (i < count && macro.targets[i].name != name) ++i;
    if (i == count) meter_.fail("the macro '{}' has no parameter '{}'", macro.text, name);
    if (given[i] != nullptr) meter_.fail("the macro '{}' gets its parameter '{}' twice", macro.text, name);
    given[i] = &value;
  }
  const size_t without_default = count - macro.expressions.size();
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = macro.targets[i].name;
    if (given[i] != nullptr) scope.set(name, *given[i]);
    else if (i >= without_default) scope.set(name, evaluate(*macro.expressions[i - without_default], scope));
    else scope.set(name, Value::undefined("the parameter '" + name + "' was not given"));
  }
  MarkedText output;
  execute(macro.body, scope, output);
  meter_.text(output.size());
  return output;
}

}  // namespace tutti::jinja
