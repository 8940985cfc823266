// The methods of str.
#include <algorithm>

#include "tutti/io/chat_template/interpreter.h"
#include "tutti/io/chat_template/method_tables.h"
#include "tutti/io/chat_template/python_text.h"
#include "tutti/io/chat_template/text_format.h"
#include "tutti/io/chat_template/value_text.h"

// Parameters without a name take no keyword, as in Python.
namespace tutti::jinja {
namespace {

const MarkedText& charged(Interpreter& interpreter, const Value& self) {
  interpreter.meter().text(self.text()->size());
  return *self.text();
}

Value list_of(std::vector<MarkedText> parts, Meter& meter) {
  meter.values(parts.size());
  std::vector<Value> items;
  for (MarkedText& part : parts) items.emplace_back(std::move(part));
  return List(std::move(items));
}

Value strip_sides(Interpreter& interpreter, const Value& self, const Arguments& arguments, bool left, bool right) {
  const auto [characters] = arguments.bind<1>("strip", {""}, interpreter.meter());
  const MarkedText& text = charged(interpreter, self);
  if (!characters || characters->is_none()) return stripped(text, std::nullopt, left, right);
  return stripped(text, text_argument(characters, "strip: chars", interpreter.meter()).bytes(), left, right);
}

Value strip(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return strip_sides(interpreter, self, arguments, true, true);
}
Value lstrip(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return strip_sides(interpreter, self, arguments, true, false);
}
Value rstrip(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return strip_sides(interpreter, self, arguments, false, true);
}

Value split_sides(Interpreter& interpreter, const Value& self, const Arguments& arguments, bool is_right) {
  Meter& meter = interpreter.meter();
  const auto [separator, maxsplit] = arguments.bind<2>("split", {"sep", "maxsplit"}, meter);
  const MarkedText& text = charged(interpreter, self);
  const int64_t most = maxsplit ? whole_argument(maxsplit, "split: maxsplit", meter) : -1;
  if (!separator || separator->is_none()) {
    if (is_right && most >= 0) meter.fail("rsplit at white space with maxsplit is not supported");
    return list_of(split_at_spaces(text, most, meter.most_values()), meter);
  }
  const std::string& at = text_argument(separator, "split: sep", meter).bytes();
  if (at.empty()) meter.fail("split: sep is empty");
  meter.text(at.size());
  const size_t most_parts = meter.most_values();
  return list_of(is_right ? split_at_right(text, at, most, most_parts) : split_at(text, at, most, most_parts), meter);
}

Value split(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return split_sides(interpreter, self, arguments, false);
}
Value rsplit(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return split_sides(interpreter, self, arguments, true);
}

Value splitlines(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto [keepends] = arguments.bind<1>("splitlines", {"keepends"}, interpreter.meter());
  Meter& meter = interpreter.meter();
  const MarkedText& text = charged(interpreter, self);
  return list_of(split_lines(text, keepends && keepends->is_true(), meter.most_values()), meter);
}

Value replace(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [old, with, count] = arguments.bind<3>("replace", {"", "", ""}, meter);
  auto made = replaced(charged(interpreter, self), text_argument(old, "replace: old", meter).bytes(),
                       text_argument(with, "replace: new", meter),
                       count ? whole_argument(count, "replace: count", meter) : -1, meter.most_text_nbytes());
  meter.text(made ? made->size() : meter.most_text_nbytes() + 1);
  return std::move(*made);
}

Value partition_sides(Interpreter& interpreter, const Value& self, const Arguments& arguments, bool is_right) {
  Meter& meter = interpreter.meter();
  const auto [separator] = arguments.bind<1>("partition", {""}, meter);
  const MarkedText& text = charged(interpreter, self);
  const std::string& at = text_argument(separator, "partition: sep", meter).bytes();
  if (at.empty()) meter.fail("partition: sep is empty");
  meter.text(at.size());
  const size_t found = is_right ? find_last_text(text.bytes(), at) : find_text(text.bytes(), at, 0);
  const Value whole = text, empty = MarkedText();
  if (found == std::string::npos)
    return List(is_right ? std::vector<Value>{empty, empty, whole} : std::vector<Value>{whole, empty, empty},
                ListKind::tuple);
  const size_t behind = found + at.size();
  return List({text.slice(0, found), text.slice(found, behind), text.slice(behind, text.size())}, ListKind::tuple);
}

Value partition(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return partition_sides(interpreter, self, arguments, false);
}
Value rpartition(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return partition_sides(interpreter, self, arguments, true);
}

bool has_affix(Interpreter& interpreter, const Value& self, const Arguments& arguments, bool is_prefix) {
  Meter& meter = interpreter.meter();
  const auto [affix] = arguments.bind<1>(is_prefix ? "startswith" : "endswith", {""}, meter);
  const std::string& text = self.text()->bytes();
  const auto holds = [&](const std::optional<Value>& one) {
    const std::string& wanted = text_argument(one, "startswith, endswith: the text", meter).bytes();
    return is_prefix ? text.starts_with(wanted) : text.ends_with(wanted);
  };
  const List* several = affix ? affix->list() : nullptr;
  if (several == nullptr || several->kind != ListKind::tuple) return holds(affix);
  return std::any_of(several->items.begin(), several->items.end(), holds);
}

Value startswith(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return has_affix(interpreter, self, arguments, true);
}
Value endswith(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return has_affix(interpreter, self, arguments, false);
}

Value removeprefix(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const MarkedText& text = charged(interpreter, self);
  if (!has_affix(interpreter, self, arguments, true)) return text;
  return text.slice(arguments.positional[0].text()->size(), text.size());
}
Value removesuffix(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const MarkedText& text = charged(interpreter, self);
  if (!has_affix(interpreter, self, arguments, false)) return text;
  return text.slice(0, text.size() - arguments.positional[0].text()->size());
}

// The characters before the place that `find` gives; -1 where the text is not there.
int64_t found_at(Interpreter& interpreter, const Value& self, const Arguments& arguments, bool is_last) {
  const auto [wanted] = arguments.bind<1>("find", {""}, interpreter.meter());
  const std::string& text = charged(interpreter, self).bytes();
  const std::string& part = text_argument(wanted, "find: sub", interpreter.meter()).bytes();
  interpreter.meter().text(part.size());
  const size_t at = is_last ? find_last_text(text, part) : find_text(text, part, 0);
  return at == std::string::npos ? -1 : std::ssize(character_starts(std::string_view(text).substr(0, at))) - 1;
}

Value find(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return found_at(interpreter, self, arguments, false);
}
Value rfind(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return found_at(interpreter, self, arguments, true);
}
Value index(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const int64_t at = found_at(interpreter, self, arguments, false);
  if (at < 0) interpreter.meter().fail("index: the text is not there");
  return at;
}

Value count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto [wanted] = arguments.bind<1>("count", {""}, interpreter.meter());
  const MarkedText& text = charged(interpreter, self);
  const std::string& part = text_argument(wanted, "count: sub", interpreter.meter()).bytes();
  if (part.empty()) return std::ssize(character_starts(text.bytes()));
  int64_t found = 0;
  for (size_t at = 0; (at = find_text(text.bytes(), part, at)) != std::string_view::npos; at += part.size()) ++found;
  return found;
}

Value join(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [parts] = arguments.bind<1>("join", {""}, meter);
  if (!parts) meter.fail("join: the values are missing");
  MarkedText made;
  bool is_first = true;
  for (const Value& part : iterate(*parts, meter)) {
    const MarkedText& text = text_argument(part, "join: a value", meter);
    meter.text(self.text()->size() + text.size());
    meter.limit_text(made.size() + self.text()->size() + text.size());
    if (!is_first) made.append(*self.text());
    made.append(text);
    is_first = false;
  }
  return made;
}

template <MarkedText (*change)(const MarkedText&)>
Value with_case(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("upper, lower, capitalize", {}, interpreter.meter());
  return change(charged(interpreter, self));
}

template <bool (*holds)(std::string_view)>
Value has_case(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("isupper, islower", {}, interpreter.meter());
  return holds(charged(interpreter, self).bytes());
}

Value isspace(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("isspace", {}, interpreter.meter());
  const MarkedText& text = charged(interpreter, self);
  return !text.is_empty() && stripped(text, std::nullopt, true, false).is_empty();
}

Value isdigit(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("isdigit", {}, interpreter.meter());
  const std::string& text = charged(interpreter, self).bytes();
  if (std::any_of(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; }))
    interpreter.meter().fail("isdigit of a text with characters beyond ASCII is not supported");
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

Builtin find_text_method(std::string_view name) {
  static constexpr std::pair<std::string_view, Builtin> kMethods[] = {
      {"strip", strip},
      {"lstrip", lstrip},
      {"rstrip", rstrip},
      {"split", split},
      {"rsplit", rsplit},
      {"splitlines", splitlines},
      {"replace", replace},
      {"partition", partition},
      {"rpartition", rpartition},
      {"startswith", startswith},
      {"endswith", endswith},
      {"removeprefix", removeprefix},
      {"find", find},
      {"removesuffix", removesuffix},
      {"rfind", rfind},
      {"index", index},
      {"count", count},
      {"join", join},
      {"upper", with_case<upper>},
      {"lower", with_case<lower>},
      {"isupper", has_case<is_upper>},
      {"islower", has_case<is_lower>},
      {"isspace", isspace},
      {"isdigit", isdigit},
      {"format", format_text},
      {"capitalize", with_case<capitalized>},
  };
  return find_in(kMethods, name);
}

}  // namespace tutti::jinja
