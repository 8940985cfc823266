// The operators of Python on values.
#pragma once

#include <string_view>

#include "tutti/io/chat_template/value.h"

namespace tutti::jinja {

// a SYMBOL b for + - * / // % **. UsageError for types that do not go together, and integers beyond 64 bits.
Value operate(std::string_view symbol, const Value& a, const Value& b, Meter& meter);
Value negated(const Value& value, Meter& meter);
// Python's `in`.
bool contains(const Value& container, const Value& value, Meter& meter);

}  // namespace tutti::jinja
