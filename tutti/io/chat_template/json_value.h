// Values from JSON, and the filter tojson.
#pragma once

#include "tutti/io/chat_template/callable.h"
#include "tutti/io/chat_template/value.h"
#include "tutti/runtime/json_document.h"

namespace tutti::jinja {

// All texts in it, keys included, get `marks`.
Value value_of_json(const JsonValue& json, Marks marks, Meter& meter);

// json.dumps(value, ensure_ascii, indent, separators, sort_keys) with the arguments that the filter takes.
Value to_json(Interpreter& interpreter, const Value& self, const Arguments& arguments);
// The value of a text of JSON, which keeps the marks of the text as a whole.
Value from_json(Interpreter& interpreter, const Value& self, const Arguments& arguments);

}  // namespace tutti::jinja
