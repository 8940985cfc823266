#include "tutti/io/chat_template/arithmetic.h"
#include "tutti/io/chat_template/interpreter.h"
#include "tutti/io/chat_template/value_text.h"

namespace tutti::jinja {

Value Interpreter::evaluate(const Expression& expression, const Scope& scope) {
  const Level level(*this);
  meter_.line = expression.line;
  meter_.step();
  const auto part = [&](size_t i) { return evaluate(*expression.parts[i], scope); };
  switch (expression.kind) {
    case ExpressionKind::constant:
      return expression.constant;
    case ExpressionKind::name:
      return evaluate_name(expression, scope);
    case ExpressionKind::list:
      return List(evaluate_parts(expression, scope, 0));
    case ExpressionKind::tuple:
      return List(evaluate_parts(expression, scope, 0), ListKind::tuple);
    case ExpressionKind::dict:
      return evaluate_dict(expression, scope);
    case ExpressionKind::attribute:
      return attribute(part(0), expression.name);
    case ExpressionKind::item: {
      const Value value = part(0);
      return item(value, part(1));
    }
    case ExpressionKind::slice: {
      const std::vector<Value> parts = evaluate_parts(expression, scope, 0);
      return slice(parts[0], parts[1], parts[2], parts[3]);
    }
    case ExpressionKind::call:
      return evaluate_call(expression, scope);
    case ExpressionKind::filter:
    case ExpressionKind::test: {
      const Value value = part(0);
      const Arguments arguments = evaluate_arguments(expression, scope);
      meter_.line = expression.line;
      return expression.builtin(*this, value, arguments);
    }
    case ExpressionKind::negation:
      return !part(0).is_true();
    case ExpressionKind::minus:
      return negated(part(0), meter_);
    case ExpressionKind::plus:
      return negated(negated(part(0), meter_), meter_);
    case ExpressionKind::binary:
      return evaluate_binary(expression, scope);
    case ExpressionKind::concat:
      return evaluate_concat(expression, scope);
    case ExpressionKind::compare:
      return evaluate_compare(expression, scope);
    case ExpressionKind::conjunction:
    case ExpressionKind::disjunction:
    case ExpressionKind::conditional:
      return evaluate_choice(expression, scope);
  }
  return {};
}

Value Interpreter::evaluate_name(const Expression& expression, const Scope& scope) {
  if (const Value* value = scope.find(expression.name)) return *value;
  if (const Builtin builtin = find_global(expression.name))
    return Callable{.name = expression.name, .builtin = builtin};
  return Value::undefined("'" + expression.name + "' is undefined");
}

std::vector<Value> Interpreter::evaluate_parts(const Expression& expression, const Scope& scope, size_t from) {
  std::vector<Value> values;
  for (size_t i = from; i < expression.parts.size(); ++i)
    values.push_back(expression.parts[i] == nullptr ? Value() : evaluate(*expression.parts[i], scope));
  meter_.line = expression.line;
  return values;
}

Arguments Interpreter::evaluate_arguments(const Expression& expression, const Scope& scope) {
  Arguments arguments{.positional = evaluate_parts(expression, scope, 1), .keywords = {}};
  const size_t count = arguments.positional.size() - expression.keywords.size();
  for (size_t i = 0; i < expression.keywords.size(); ++i)
    arguments.keywords.emplace_back(expression.keywords[i], std::move(arguments.positional[count + i]));
  arguments.positional.resize(count);
  return arguments;
}

Value Interpreter::evaluate_dict(const Expression& expression, const Scope& scope) {
  Dict dict;
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    const Value key = evaluate(*expression.parts[i], scope);
    dict.set(key, evaluate(*expression.parts[i + 1], scope), meter_);
  }
  return dict;
}

Value Interpreter::evaluate_binary(const Expression& expression, const Scope& scope) {
  Value value = evaluate(*expression.parts[0], scope);
  for (size_t i = 1; i < expression.parts.size(); ++i) {
    const Value right = evaluate(*expression.parts[i], scope);
    meter_.line = expression.line;
    value = operate(expression.name, value, right, meter_);
  }
  return value;
}

Value Interpreter::evaluate_concat(const Expression& expression, const Scope& scope) {
  MarkedText made;
  for (const ExpressionPtr& part : expression.parts) {
    const Value value = evaluate(*part, scope);
    print(to_text(value, meter_), made);
  }
  return made;
}

Value Interpreter::evaluate_choice(const Expression& expression, const Scope& scope) {
  if (expression.kind == ExpressionKind::conditional) {
    const bool holds = evaluate(*expression.parts[0], scope).is_true();
    const Expression* chosen = expression.parts[holds ? 1 : 2].get();
    if (chosen == nullptr) return Value::undefined("an inline 'if' is false and has no 'else'");
    return evaluate(*chosen, scope);
  }
  // As in Python, the result is the value that decides.
  const bool stops_at = expression.kind == ExpressionKind::disjunction;
  Value value;
  for (const ExpressionPtr& part : expression.parts) {
    value = evaluate(*part, scope);
    if (value.is_true() == stops_at) break;
  }
  return value;
}

bool Interpreter::evaluate_compare(const Expression& expression, const Scope& scope) {
  Value left = evaluate(*expression.parts[0], scope);
  for (size_t i = 0; i < expression.symbols.size(); ++i) {
    const std::string& symbol = expression.symbols[i];
    Value right = evaluate(*expression.parts[i + 1], scope);
    meter_.line = expression.line;
    bool holds = false;
    if (symbol == "==" || symbol == "!=") holds = equals(left, right, meter_) == (symbol == "==");
    else if (symbol == "in" || symbol == "not in") holds = contains(right, left, meter_) == (symbol == "in");
    else if (symbol == "<") holds = is_less(left, right, meter_);
    else if (symbol == ">") holds = is_less(right, left, meter_);
    else {
      const bool is_strict = symbol == "<=" ? is_less(left, right, meter_) : is_less(right, left, meter_);
      holds = is_strict || equals(left, right, meter_);
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_call(const Expression& expression, const Scope& scope) {
  const Value function = evaluate(*expression.parts[0], scope);
  const Arguments arguments = evaluate_arguments(expression, scope);
  meter_.line = expression.line;
  return call(function, arguments);
}

Value Interpreter::call(const Value& function, const Arguments& arguments) {
  if (function.is_undefined()) meter_.fail_with(function.hint());
  const Callable* callable = function.callable();
  if (callable == nullptr) meter_.fail("a {} is called; it is no function", function.type_name());
  if (callable->macro != nullptr) return call_macro(*callable->macro, arguments);
  return callable->builtin(*this, callable->self, arguments);
}

}  // namespace tutti::jinja
