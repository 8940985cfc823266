// The attributes that filters such as map and sort take from values: "function.name", "0".
#pragma once

#include <optional>
#include <vector>

#include "tutti/io/chat_template/value.h"

namespace tutti::jinja {

class Interpreter;

class AttributePath {
 public:
  // `path` is a str, whose parts stand between dots, or an int; nullopt takes the value itself.
  AttributePath(const std::optional<Value>& path, Interpreter& interpreter);
  Value of(const Value& value, const std::optional<Value>& otherwise = std::nullopt) const;

 private:
  Interpreter& interpreter_;
  std::vector<Value> parts_;
};

}  // namespace tutti::jinja
