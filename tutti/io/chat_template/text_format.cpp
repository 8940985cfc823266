#include "tutti/io/chat_template/text_format.h"

#include <algorithm>
#include <charconv>

#include "tutti/io/chat_template/interpreter.h"
#include "tutti/io/chat_template/value_text.h"

namespace tutti::jinja {
namespace {

const Value& field_value(std::string_view field, size_t& next, const Arguments& arguments, const Meter& meter) {
  size_t at = next;
  if (field.empty()) {
    ++next;
  } else if (field.find_first_not_of("0123456789") != std::string_view::npos) {
    if (field.find_first_of(".[!:") != std::string_view::npos)
      meter.fail("format: the field {{{}}} is more than a name or number, which is not supported", field);
    for (const auto& [name, value] : arguments.keywords)
      if (name == field) return value;
    meter.fail("format: there is no argument '{}'", field);
  } else if (std::from_chars(field.data(), field.data() + field.size(), at).ec != std::errc()) {
    at = arguments.positional.size();
  }
  if (at >= arguments.positional.size()) meter.fail("format: there is no argument {}", at);
  return arguments.positional[at];
}

}  // namespace

Value format_text(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const MarkedText& text = *self.text();
  const std::string_view bytes = text.bytes();
  meter.text(bytes.size());
  MarkedText made;
  size_t next = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    made.append(text, at, brace);
    if (brace == bytes.size()) break;
    if (bytes.substr(brace + 1).starts_with(bytes[brace])) {  // {{ and }} print one
      made.append(text, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const size_t end = bytes[brace] == '{' ? bytes.find('}', brace) : std::string_view::npos;
    if (end == std::string_view::npos) meter.fail("format: a single '{}' in the text", bytes[brace]);
    const MarkedText value =
        to_text(field_value(bytes.substr(brace + 1, end - brace - 1), next, arguments, meter), meter);
    meter.limit_text(made.size() + value.size());
    made.append(value);
    at = end + 1;
  }
  return made;
}

}  // namespace tutti::jinja
