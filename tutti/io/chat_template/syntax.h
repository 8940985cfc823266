// The tree of a parsed template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/io/chat_template/callable.h"
#include "tutti/io/chat_template/value.h"

namespace tutti::jinja {

enum class ExpressionKind {
  constant,
  name,
  list,
  tuple,
  dict,       // keys and values by turns
  attribute,  // operand . name
  item,       // operand [ index ]
  slice,      // operand [ begin : end : step ], where parts may be nullptr
  call,       // function and arguments
  filter,     // operand and arguments; `builtin` is the filter
  test,
  negation,  // not
  minus,
  plus,
  binary,   // `name` is the symbol
  concat,   // ~ of two or more
  compare,  // operands, with `symbols` between them
  conjunction,
  disjunction,
  conditional  // condition, value, and the value otherwise, which may be nullptr
};

struct Expression {
  ExpressionKind kind;
  int line;
  std::string name = {};
  Value constant = {};
  Builtin builtin = nullptr;
  std::vector<std::unique_ptr<Expression>> parts = {};
  // Keywords of a call, filter or test; their values are the last of `parts`.
  std::vector<std::string> keywords = {};
  std::vector<std::string> symbols = {};
  int depth = 1;  // of the tree
};
using ExpressionPtr = std::unique_ptr<Expression>;

enum class StatementKind {
  data,
  output,
  set,
  set_block,
  for_,
  if_,
  with,
  macro,
  filter_block,
  generation,
  break_,
  continue_
};

// What `set` and `for` assign to.
struct Target {
  std::string name = {};
  std::string attribute = {};  // of the namespace `name`; empty: the variable itself
};

struct Statement;
using Block = std::vector<Statement>;

struct Branch {
  ExpressionPtr condition;  // nullptr: else
  Block body;
};

struct Statement {
  StatementKind kind;
  int line;
  std::string text = {};  // of data; the name of a macro
  // set: the value. for: what is iterated over, and the condition or nullptr. with: the values. macro: the defaults of
  // the last parameters. set_block, filter_block: the filters, whose innermost operand is nullptr.
  std::vector<ExpressionPtr> expressions = {};
  std::vector<Target> targets = {};  // variables of set, for and with; parameters of a macro
  bool is_tuple = false;             // the targets take the parts of one value
  Block body = {};
  std::vector<Branch> branches = {};  // of if; of for: one, what is done when there was nothing
};

struct Template {
  std::string name;
  ChatTemplateLimits limits;
  Block body;
  bool has_generation = false;
};

}  // namespace tutti::jinja
