// Filters that read lists and dicts.
#include <algorithm>

#include "tutti/io/chat_template/arithmetic.h"
#include "tutti/io/chat_template/attribute_path.h"
#include "tutti/io/chat_template/interpreter.h"
#include "tutti/io/chat_template/method_tables.h"
#include "tutti/io/chat_template/python_text.h"
#include "tutti/io/chat_template/value_text.h"

namespace tutti::jinja {
namespace {

bool is_given(const std::optional<Value>& flag) { return flag && flag->is_true(); }

// Texts without regard to case, as filters compare them by default.
Value folded(const Value& value, bool is_case_sensitive, Meter& meter) {
  if (is_case_sensitive || value.text() == nullptr) return value;
  meter.text(value.text()->size());
  return lower(*value.text());
}

// Sorts by keys, which std::sort must not do: hostile values may have no order that is one.
std::vector<Value> sorted_by(std::vector<std::pair<Value, Value>> keyed, bool is_reverse, Meter& meter) {
  // A merge sort stays within bounds whatever the comparisons say.
  const auto is_before = [&](const auto& a, const auto& b) {
    return is_reverse ? is_less(b.first, a.first, meter) : is_less(a.first, b.first, meter);
  };
  std::vector<std::pair<Value, Value>> merged(keyed.size());
  for (size_t width = 1; width < keyed.size(); width *= 2) {
    for (size_t begin = 0; begin < keyed.size(); begin += 2 * width) {
      const auto at = [&](size_t i) { return keyed.begin() + static_cast<std::ptrdiff_t>(std::min(i, keyed.size())); };
      std::merge(at(begin), at(begin + width), at(begin + width), at(begin + 2 * width),
                 merged.begin() + static_cast<std::ptrdiff_t>(begin), is_before);
    }
    std::swap(keyed, merged);
  }
  std::vector<Value> values;
  for (auto& entry : keyed) values.push_back(std::move(entry.second));
  return values;
}

Value sort_values(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [reverse, case_sensitive, attribute] =
      arguments.bind<3>("sort", {"reverse", "case_sensitive", "attribute"}, meter);
  if (attribute && attribute->text() != nullptr && attribute->text()->bytes().find(',') != std::string::npos)
    meter.fail("sort: several attributes are not supported");
  const AttributePath path(attribute, interpreter);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(self, meter))
    keyed.emplace_back(folded(path.of(item), is_given(case_sensitive), meter), item);
  return List(sorted_by(std::move(keyed), is_given(reverse), meter));
}

Value dictsort(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [case_sensitive, by, reverse] = arguments.bind<3>("dictsort", {"case_sensitive", "by", "reverse"}, meter);
  const std::string what = by ? text_argument(by, "dictsort: by", meter).bytes() : "key";
  if (what != "key" && what != "value") meter.fail("dictsort: by is '{}'; expected 'key' or 'value'", what);
  if (self.dict() == nullptr) meter.fail("dictsort: a {} is no dict", self.type_name());
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : self.dict()->entries)
    keyed.emplace_back(folded(what == "key" ? key : value, is_given(case_sensitive), meter),
                       List({key, value}, ListKind::tuple));
  return List(sorted_by(std::move(keyed), is_given(reverse), meter));
}

Value items(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  arguments.bind<0>("items", {}, meter);
  std::vector<Value> pairs;
  if (const Dict* dict = self.dict()) {
    meter.values(dict->entries.size());
    for (const auto& [key, value] : dict->entries) pairs.emplace_back(List({key, value}, ListKind::tuple));
  } else if (!self.is_undefined()) {
    meter.fail("items: a {} is no dict", self.type_name());
  }
  return List(std::move(pairs), ListKind::generator);
}

Value join_values(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [between, attribute] = arguments.bind<2>("join", {"d", "attribute"}, meter);
  const AttributePath path(attribute, interpreter);
  const MarkedText separator = between ? to_text(*between, meter) : MarkedText();
  MarkedText made;
  bool is_first = true;
  for (const Value& item : iterate(self, meter)) {
    const MarkedText text = to_text(path.of(item), meter);
    meter.text(separator.size());
    meter.limit_text(made.size() + separator.size() + text.size());
    if (!is_first) made.append(separator);
    made.append(text);
    is_first = false;
  }
  return made;
}

Value to_list(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("list", {}, interpreter.meter());
  return List(iterate(self, interpreter.meter()));
}

Value first_value(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("first", {}, interpreter.meter());
  const std::vector<Value> values = iterate(self, interpreter.meter());
  return values.empty() ? Value::undefined("no first item: there are none") : values.front();
}

// The values of what Python can go through backwards.
std::vector<Value> reversible(const Value& self, std::string_view filter, Meter& meter) {
  if (self.list() != nullptr && self.list()->kind == ListKind::generator)
    meter.fail("{}: a generator has no end before it is read; make a list of it with |list", filter);
  return iterate(self, meter);
}

Value last_value(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("last", {}, interpreter.meter());
  const std::vector<Value> values = reversible(self, "last", interpreter.meter());
  return values.empty() ? Value::undefined("no last item: there are none") : values.back();
}

Value reverse_values(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  arguments.bind<0>("reverse", {}, meter);
  if (self.text() != nullptr) return interpreter.slice(self, Value(), Value(), int64_t{-1});
  std::vector<Value> values = iterate(self, meter);
  std::reverse(values.begin(), values.end());
  return List(std::move(values), ListKind::generator);
}

Value sum_values(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [attribute, start] = arguments.bind<2>("sum", {"attribute", "start"}, meter);
  const AttributePath path(attribute, interpreter);
  Value sum = start.value_or(int64_t{0});
  for (const Value& item : iterate(self, meter)) sum = operate("+", sum, path.of(item), meter);
  return sum;
}

template <bool is_least>
Value extreme(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [case_sensitive, attribute] = arguments.bind<2>("min, max", {"case_sensitive", "attribute"}, meter);
  const AttributePath path(attribute, interpreter);
  std::optional<std::pair<Value, Value>> best;
  for (const Value& item : iterate(self, meter)) {
    const Value key = folded(path.of(item), is_given(case_sensitive), meter);
    if (!best || (is_least ? is_less(key, best->first, meter) : is_less(best->first, key, meter))) best = {key, item};
  }
  return best ? best->second : Value::undefined("no least or greatest item: there are none");
}

Value unique(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  const auto [case_sensitive, attribute] = arguments.bind<2>("unique", {"case_sensitive", "attribute"}, meter);
  const AttributePath path(attribute, interpreter);
  Dict seen;
  std::vector<Value> values;
  for (const Value& item : iterate(self, meter)) {
    const Value key = folded(path.of(item), is_given(case_sensitive), meter);
    if (seen.find(key, meter) != nullptr) continue;
    seen.set(key, true, meter);
    values.push_back(item);
  }
  return List(std::move(values), ListKind::generator);
}

}  // namespace

Builtin find_sequence_filter(std::string_view name) {
  static constexpr std::pair<std::string_view, Builtin> kFilters[] = {
      {"sort", sort_values}, {"dictsort", dictsort}, {"items", items},        {"join", join_values},
      {"list", to_list},     {"first", first_value}, {"last", last_value},    {"reverse", reverse_values},
      {"sum", sum_values},   {"min", extreme<true>}, {"max", extreme<false>}, {"unique", unique}};
  return find_in(kFilters, name);
}

}  // namespace tutti::jinja
