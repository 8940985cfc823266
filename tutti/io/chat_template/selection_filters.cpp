// Filters that apply a filter or test to each value: map, select, reject, selectattr, rejectattr.
#include "tutti/io/chat_template/attribute_path.h"
#include "tutti/io/chat_template/interpreter.h"
#include "tutti/io/chat_template/method_tables.h"

namespace tutti::jinja {
namespace {

// The arguments behind the first `count`.
Arguments rest_of(const Arguments& arguments, size_t count) {
  return {.positional = {arguments.positional.begin() + static_cast<std::ptrdiff_t>(count), arguments.positional.end()},
          .keywords = arguments.keywords};
}

Value map_values(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  if (!self.is_true()) return List({}, ListKind::generator);
  std::vector<Value> values;
  if (arguments.positional.empty()) {
    const auto [attribute, otherwise] = arguments.bind<2>("map", {"attribute", "default"}, meter);
    if (!attribute) meter.fail("map takes the name of a filter, or attribute=");
    const AttributePath path(attribute, interpreter);
    for (const Value& item : iterate(self, meter)) values.push_back(path.of(item, otherwise));
  } else {
    const std::string& name = text_argument(arguments.positional[0], "map: the name of a filter", meter).bytes();
    const Builtin filter = find_filter(name);
    if (filter == nullptr) meter.fail("map: the filter '{}' is not supported", name);
    const Arguments rest = rest_of(arguments, 1);
    for (const Value& item : iterate(self, meter)) values.push_back(filter(interpreter, item, rest));
  }
  return List(std::move(values), ListKind::generator);
}

template <bool keeps, bool has_attribute>
Value choose(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  Meter& meter = interpreter.meter();
  if (!self.is_true()) return List({}, ListKind::generator);
  const size_t attributes = has_attribute ? 1 : 0;
  if (arguments.positional.size() < attributes) meter.fail("selectattr, rejectattr: the attribute is missing");
  const AttributePath path(has_attribute ? std::optional(arguments.positional[0]) : std::nullopt, interpreter);
  Builtin test = nullptr;
  Arguments rest;
  if (arguments.positional.size() > attributes) {
    const std::string& name = text_argument(arguments.positional[attributes], "the name of a test", meter).bytes();
    test = find_value_test(name);
    if (test == nullptr) meter.fail("the test '{}' is not supported", name);
    rest = rest_of(arguments, attributes + 1);
  }
  std::vector<Value> values;
  for (const Value& item : iterate(self, meter)) {
    const Value tested = path.of(item);
    const bool holds = test == nullptr ? tested.is_true() : test(interpreter, tested, rest).is_true();
    if (holds == keeps) values.push_back(item);
  }
  return List(std::move(values), ListKind::generator);
}

}  // namespace

Builtin find_selection_filter(std::string_view name) {
  static constexpr std::pair<std::string_view, Builtin> kFilters[] = {{"map", map_values},
                                                                      {"select", choose<true, false>},
                                                                      {"reject", choose<false, false>},
                                                                      {"selectattr", choose<true, true>},
                                                                      {"rejectattr", choose<false, true>}};
  return find_in(kFilters, name);
}

}  // namespace tutti::jinja
