// Functions that templates call: macros, methods of values, global functions, filters and tests.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/io/chat_template/meter.h"
#include "tutti/io/chat_template/value.h"

namespace tutti::jinja {

class Interpreter;
struct Statement;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;

  // The arguments by the names of parameters, nullopt where none was given. UsageError for too many and for others.
  template <size_t N>
  std::array<std::optional<Value>, N> bind(std::string_view function, const std::array<std::string_view, N>& names,
                                           const Meter& meter) const {
    std::array<std::optional<Value>, N> bound;
    bind_to(function, names.data(), bound.data(), N, meter);
    return bound;
  }

 private:
  void bind_to(std::string_view function, const std::string_view* names, std::optional<Value>* bound, size_t count,
               const Meter& meter) const;
};

using Builtin = Value (*)(Interpreter& interpreter, const Value& self, const Arguments& arguments);

struct Callable {
  std::string name;
  Builtin builtin = nullptr;
  Value self = {};
  const Statement* macro = nullptr;
};

// nullptr when there is none of that name.
Builtin find_filter(std::string_view name);
Builtin find_value_test(std::string_view name);
Builtin find_global(std::string_view name);
// Methods of str and dict, and those of lists that read.
Builtin find_method(const Value& self, std::string_view name);
// Whether the type has a method of that name in Python that the sandbox forbids, because it changes the value, or that
// is not supported.
bool is_forbidden_method(const Value& self, std::string_view name);
bool is_unsupported_method(const Value& self, std::string_view name);

// Each table has its part of the filters.
Builtin find_text_filter(std::string_view name);
Builtin find_sequence_filter(std::string_view name);
Builtin find_selection_filter(std::string_view name);

// The value of an argument of a type; UsageError, naming function and parameter, for another.
const MarkedText& text_argument(const std::optional<Value>& value, std::string_view what, const Meter& meter);
int64_t whole_argument(const std::optional<Value>& value, std::string_view what, const Meter& meter);

}  // namespace tutti::jinja
