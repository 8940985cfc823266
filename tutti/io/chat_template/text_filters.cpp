// Filters that make texts and numbers of one value.
#include <charconv>
#include <cmath>

#include "tutti/io/chat_template/arithmetic.h"
#include "tutti/io/chat_template/interpreter.h"
#include "tutti/io/chat_template/json_value.h"
#include "tutti/io/chat_template/method_tables.h"
#include "tutti/io/chat_template/python_text.h"
#include "tutti/io/chat_template/value_text.h"

namespace tutti::jinja {
namespace {

template <MarkedText (*change)(const MarkedText&)>
Value change_case(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("upper, lower, capitalize", {}, interpreter.meter());
  return change(to_text(self, interpreter.meter()));
}

Value trim(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [characters] = arguments.bind<1>("trim", {"chars"}, meter);
  const MarkedText text = to_text(self, meter);
  if (!characters || characters->is_none()) return stripped(text, std::nullopt, true, true);
  return stripped(text, text_argument(characters, "trim: chars", meter).bytes(), true, true);
}

Value replace_text(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [old, with, count] = arguments.bind<3>("replace", {"old", "new", "count"}, meter);
  if (!old || !with) meter.fail("replace: old or new is missing");
  const int64_t most = count && !count->is_none() ? whole_argument(count, "replace: count", meter) : -1;
  auto made = replaced(to_text(self, meter), to_text(*old, meter).bytes(), to_text(*with, meter), most,
                       meter.most_text_nbytes());
  meter.text(made ? made->size() : meter.most_text_nbytes() + 1);
  return std::move(*made);
}

Value indent(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [width, first, blank] = arguments.bind<3>("indent", {"width", "first", "blank"}, meter);
  MarkedText text = text_argument(self, "indent", meter);
  MarkedText margin;
  if (width && width->text() != nullptr) {
    margin = *width->text();
  } else {
    const int64_t spaces = width ? whole_argument(width, "indent: width", meter) : 4;
    if (spaces > 0) margin = *operate("*", Value::of_text(" "), spaces, meter).text();
  }
  text.append("\n");
  const std::vector<MarkedText> lines = split_lines(text, false, meter.most_values());
  meter.values(lines.size());
  MarkedText made;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) made.append("\n");
    const bool is_indented = i == 0 ? first && first->is_true() : !lines[i].is_empty() || (blank && blank->is_true());
    meter.text(margin.size() + lines[i].size());
    meter.limit_text(made.size() + margin.size() + lines[i].size());
    if (is_indented) made.append(margin);
    made.append(lines[i]);
  }
  return made;
}

Value to_string(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("string", {}, interpreter.meter());
  return to_text(self, interpreter.meter());
}

Value mark_safe(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("safe", {}, interpreter.meter());
  MarkedText text = to_text(self, interpreter.meter());
  text.is_markup = true;
  return text;
}

Value escape_html(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  arguments.bind<0>("escape", {}, meter);
  MarkedText text = to_text(self, meter);
  if (text.is_markup) return text;
  text = html_escaped(text);
  meter.text(text.size());
  text.is_markup = true;
  return text;
}

Value title(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  arguments.bind<0>("title", {}, meter);
  return titled(to_text(self, meter));
}

Value use_default(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto [value, boolean] = arguments.bind<2>("default", {"default_value", "boolean"}, interpreter.meter());
  const bool is_used = self.is_undefined() || (boolean && boolean->is_true() && !self.is_true());
  return is_used ? value.value_or(MarkedText()) : self;
}

Value length(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  arguments.bind<0>("length", {}, meter);
  if (self.text() != nullptr) meter.text(self.text()->size());
  const auto found = length_of(self);
  if (!found) meter.fail("length: a {} has no length", self.type_name());
  return *found;
}

// The number that a text says; nothing when it says none.
std::optional<double> read_real(const MarkedText& text) {
  const MarkedText inner = stripped(text, std::nullopt, true, true);
  std::string_view written = inner.bytes();
  if (written.starts_with('+') && !written.starts_with("+-")) written.remove_prefix(1);
  double number = 0;
  const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), number);
  if (error != std::errc() || end != written.data() + written.size()) return std::nullopt;
  return number;
}

std::optional<Value> whole_of(double number) {
  if (!std::isfinite(number) || std::abs(number) >= 9.2e18) return std::nullopt;
  return Value(static_cast<int64_t>(number));
}

Value to_int(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [otherwise, base] = arguments.bind<2>("int", {"default", "base"}, meter);
  if (base && whole_argument(base, "int: base", meter) != 10) meter.fail("int: a base other than 10 is not supported");
  if (self.is_undefined()) meter.fail_with(self.hint());
  if (const auto whole = self.integer()) return *whole;
  std::optional<Value> made;
  if (const double* number = self.number()) made = whole_of(*number);
  if (const MarkedText* text = self.text()) {
    const MarkedText inner = stripped(*text, std::nullopt, true, true);
    std::string_view written = inner.bytes();
    if (written.starts_with('+') && !written.starts_with("+-")) written.remove_prefix(1);
    int64_t whole = 0;
    const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), whole);
    if (error == std::errc::result_out_of_range) meter.fail("int: {} does not fit 64 bits", written.substr(0, 40));
    if (error == std::errc() && end == written.data() + written.size()) return whole;
    if (const auto number = read_real(*text)) made = whole_of(*number);
  }
  return made ? *made : otherwise.value_or(int64_t{0});
}

Value to_float(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [otherwise] = arguments.bind<1>("float", {"default"}, meter);
  if (self.is_undefined()) meter.fail_with(self.hint());
  if (const auto number = self.real()) return *number;
  const auto read = self.text() == nullptr ? std::nullopt : read_real(*self.text());
  return read ? Value(*read) : otherwise.value_or(0.0);
}

Value absolute(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  arguments.bind<0>("abs", {}, meter);
  const auto number = self.real();
  if (!number) meter.fail("abs: a {} is no number", self.type_name());
  return *number < 0 ? negated(self, meter) : self.integer() ? Value(*self.integer()) : self;
}

Value round_number(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [precision, method] = arguments.bind<2>("round", {"precision", "method"}, meter);
  const int64_t digits = precision ? whole_argument(precision, "round: precision", meter) : 0;
  if (digits < 0 || digits > 15 || (method && text_argument(method, "round: method", meter).bytes() != "common"))
    meter.fail("round: only the method 'common' to 0 to 15 digits is supported");
  const auto number = self.real();
  if (!number) meter.fail("round: a {} is no number", self.type_name());
  if (self.integer()) return *self.integer();
  double rounded = 0;
  const std::string text = fmt::format("{:.{}f}", *number, digits);
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

}  // namespace

Builtin find_text_filter(std::string_view name) {
  static constexpr std::pair<std::string_view, Builtin> kFilters[] = {{"upper", change_case<upper>},
                                                                      {"lower", change_case<lower>},
                                                                      {"capitalize", change_case<capitalized>},
                                                                      {"title", title},
                                                                      {"trim", trim},
                                                                      {"replace", replace_text},
                                                                      {"indent", indent},
                                                                      {"string", to_string},
                                                                      {"safe", mark_safe},
                                                                      {"e", escape_html},
                                                                      {"escape", escape_html},
                                                                      {"default", use_default},
                                                                      {"d", use_default},
                                                                      {"length", length},
                                                                      {"count", length},
                                                                      {"int", to_int},
                                                                      {"float", to_float},
                                                                      {"abs", absolute},
                                                                      {"round", round_number},
                                                                      {"tojson", to_json},
                                                                      {"from_json", from_json}};
  return find_in(kFilters, name);
}

Builtin find_filter(std::string_view name) {
  if (const Builtin filter = find_text_filter(name)) return filter;
  if (const Builtin filter = find_sequence_filter(name)) return filter;
  return find_selection_filter(name);
}

}  // namespace tutti::jinja
