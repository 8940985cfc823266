// The texts that Python makes of values: str(), repr() and the floats of both.
#pragma once

#include <string>

#include "tutti/io/chat_template/value.h"

namespace tutti::jinja {

// What {{ value }} prints. UsageError for values that no template prints on purpose, such as functions.
MarkedText to_text(const Value& value, Meter& meter);
MarkedText repr_of(const Value& value, Meter& meter);
// repr(float): the shortest digits that read as the same number.
std::string float_text(double number);

}  // namespace tutti::jinja
