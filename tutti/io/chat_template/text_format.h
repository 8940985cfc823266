// str.format() with fields such as {}, {0} and {name}.
#pragma once

#include "tutti/io/chat_template/callable.h"

namespace tutti::jinja {

// UsageError for fields with attributes, items, conversions or formats.
Value format_text(Interpreter& interpreter, const Value& self, const Arguments& arguments);

}  // namespace tutti::jinja
