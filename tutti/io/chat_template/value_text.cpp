#include "tutti/io/chat_template/value_text.h"

#include <charconv>
#include <cmath>

#include "tutti/io/chat_template/meter.h"
#include "tutti/io/utf8.h"

namespace tutti::jinja {
namespace {

// Whether repr() writes a character as an escape: controls, separators but the space, and what has no glyph of its own.
bool is_escaped_in_repr(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD || c == 0x1680 || (c >= 0x2000 && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202F) || (c >= 0x205F && c <= 0x206F) || c == 0x3000 || (c >= 0xD800 && c <= 0xF8FF) ||
         c == 0xFEFF || (c >= 0xFFF0 && c <= 0xFFFB) || (c & 0xFFFE) == 0xFFFE || c >= 0xE0000;
}

MarkedText text_repr(const MarkedText& text, Meter& meter) {
  const std::string_view bytes = text.bytes();
  meter.text(bytes.size());
  const char quote = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos ? '"' : '\'';
  MarkedText made(std::string_view(&quote, 1));
  for (size_t at = 0; at < bytes.size();) {
    const size_t nbytes = std::max<size_t>(io::utf8_sequence_nbytes(bytes.substr(at)), 1);
    const uint32_t c = io::utf8_decode(bytes.substr(at, nbytes));
    const Marks marks = text.marks_at(at);
    if (c == static_cast<uint32_t>(quote) || c == '\\') made.append("\\", marks);
    if (c == '\n') made.append("\\n", marks);
    else if (c == '\r') made.append("\\r", marks);
    else if (c == '\t') made.append("\\t", marks);
    else if (!is_escaped_in_repr(c)) made.append(text, at, at + nbytes);
    else if (c <= 0xFF) made.append(fmt::format("\\x{:02x}", c), marks);
    else if (c <= 0xFFFF) made.append(fmt::format("\\u{:04x}", c), marks);
    else made.append(fmt::format("\\U{:08x}", c), marks);
    at += nbytes;
  }
  made.append(std::string_view(&quote, 1));
  return made;
}

MarkedText list_repr(const List& list, const Value& value, Meter& meter) {
  if (list.kind == ListKind::generator) meter.fail("a generator is printed; make a list of it with |list");
  if (list.kind == ListKind::range) meter.fail("a range is printed; make a list of it with |list");
  const bool is_tuple = list.kind == ListKind::tuple;
  MarkedText made(list.kind == ListKind::list ? "[" : is_tuple ? "(" : std::string(value.type_name()) + "([");
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) made.append(", ");
    made.append(repr_of(list.items[i], meter));
    meter.limit_text(made.size());
  }
  if (is_tuple && list.items.size() == 1) made.append(",");
  made.append(list.kind == ListKind::list ? "]" : is_tuple ? ")" : "])");
  return made;
}

}  // namespace

std::string float_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[64];
  // Digits in scientific form: D.DDDDe+XX.
  const auto written = std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific);
  std::string text(buffer, written.ptr);
  const size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16) return text;
  const bool is_negative = text[0] == '-';
  std::string digits = text.substr(is_negative ? 1 : 0, e - (is_negative ? 1 : 0));
  if (digits.size() > 1) digits.erase(1, 1);
  if (exponent < 0) digits = "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  else {
    const auto whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= whole) digits += std::string(whole - digits.size(), '0') + ".0";
    else digits.insert(whole, ".");
  }
  return (is_negative ? "-" : "") + digits;
}

MarkedText repr_of(const Value& value, Meter& meter) {
  meter.step();
  if (const MarkedText* text = value.text()) return text_repr(*text, meter);
  if (value.is_undefined()) return MarkedText("Undefined");
  if (const List* list = value.list()) return list_repr(*list, value, meter);
  const Dict* dict = value.dict();
  if (dict == nullptr) return to_text(value, meter);
  MarkedText made("{");
  for (size_t i = 0; i < dict->entries.size(); ++i) {
    if (i > 0) made.append(", ");
    made.append(repr_of(dict->entries[i].first, meter));
    made.append(": ");
    made.append(repr_of(dict->entries[i].second, meter));
    meter.limit_text(made.size());
  }
  made.append("}");
  return made;
}

MarkedText to_text(const Value& value, Meter& meter) {
  meter.step();
  if (const MarkedText* text = value.text()) {
    meter.text(text->size());
    return *text;
  }
  if (value.is_undefined()) return {};
  if (value.is_none()) return MarkedText("None");
  if (const bool* truth = value.boolean()) return MarkedText(*truth ? "True" : "False");
  if (const int64_t* whole = value.whole()) return MarkedText(fmt::format("{}", *whole));
  if (const double* number = value.number()) return MarkedText(float_text(*number));
  if (value.list() != nullptr || value.dict() != nullptr) return repr_of(value, meter);
  meter.fail("a {} is printed; only values are", value.type_name());
}

}  // namespace tutti::jinja
