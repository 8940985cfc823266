// Runs a parsed template.
#pragma once

#include <ctime>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/io/chat_template/callable.h"
#include "tutti/io/chat_template/meter.h"
#include "tutti/io/chat_template/syntax.h"
#include "tutti/io/chat_template/value.h"

namespace tutti::jinja {

// Variables by name; names are those of the tree. A variable that is not there is looked for in the parent.
class Scope {
 public:
  explicit Scope(const Scope* parent) : parent_(parent) {}
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);

 private:
  const Scope* parent_;
  std::map<std::string_view, Value> variables_;
};

class Interpreter {
 public:
  // `variables` are what the template sees; both must outlive the interpreter.
  Interpreter(const Template& parsed, const Scope& variables, const std::tm& now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  MarkedText run();

  Meter& meter() { return meter_; }
  const std::string& name() const { return template_.name; }
  const std::tm& now() const { return now_; }

  Value call(const Value& function, const Arguments& arguments);
  // value.name and value[key].
  Value attribute(const Value& value, std::string_view name);
  Value item(const Value& value, const Value& key);
  // The part of a list or text between two positions, which are none where they are left out.
  Value slice(const Value& value, const Value& begin, const Value& end, const Value& step);
  // A namespace that is emptied at the end, so that cycles are no leak.
  Value make_namespace();

 private:
  enum class Flow { next, break_, continue_ };
  // Counts the recursion of the interpreter.
  struct Level {
    explicit Level(Interpreter& interpreter);
    ~Level() { --interpreter.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Interpreter& interpreter;
  };

  // Statements; in statements.cpp.
  Flow execute(const Block& block, Scope& scope, MarkedText& output);
  Flow execute(const Statement& statement, Scope& scope, MarkedText& output);
  Flow execute_for(const Statement& loop, Scope& scope, MarkedText& output);
  Flow execute_if(const Statement& choice, Scope& scope, MarkedText& output);
  Flow execute_with(const Statement& with, Scope& scope, MarkedText& output);
  MarkedText capture(const Block& block, const Scope& scope);
  Value filtered(const Expression* filter, Value value, Scope& scope);
  void assign(const std::vector<Target>& targets, bool is_tuple, const Value& value, Scope& scope);
  void print(const MarkedText& text, MarkedText& output);
  Value call_macro(const Statement& macro, const Arguments& arguments);

  // Expressions; in expressions.cpp.
  Value evaluate(const Expression& expression, const Scope& scope);
  Value evaluate_name(const Expression& expression, const Scope& scope);
  Value evaluate_dict(const Expression& expression, const Scope& scope);
  Value evaluate_binary(const Expression& expression, const Scope& scope);
  Value evaluate_concat(const Expression& expression, const Scope& scope);
  Value evaluate_choice(const Expression& expression, const Scope& scope);
  bool evaluate_compare(const Expression& expression, const Scope& scope);
  Value evaluate_call(const Expression& expression, const Scope& scope);
  std::vector<Value> evaluate_parts(const Expression& expression, const Scope& scope, size_t from);
  Arguments evaluate_arguments(const Expression& expression, const Scope& scope);

  const Template& template_;
  Meter meter_;
  Scope root_;
  std::tm now_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace tutti::jinja
