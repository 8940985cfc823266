// The tests behind `is`.
#include "tutti/io/chat_template/arithmetic.h"
#include "tutti/io/chat_template/interpreter.h"
#include "tutti/io/chat_template/method_tables.h"
#include "tutti/io/chat_template/python_text.h"
#include "tutti/io/chat_template/value_text.h"

namespace tutti::jinja {
namespace {

using Question = bool (*)(const Value& value);

template <Question question>
Value ask(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("this test", {}, interpreter.meter());
  return question(self);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.boolean() != nullptr; }
bool is_true(const Value& value) { return is_boolean(value) && *value.boolean(); }
bool is_false(const Value& value) { return is_boolean(value) && !*value.boolean(); }
bool is_integer(const Value& value) { return value.whole() != nullptr; }
bool is_float(const Value& value) { return value.number() != nullptr; }
bool is_number(const Value& value) { return value.real().has_value(); }
bool is_string(const Value& value) { return value.text() != nullptr; }
bool is_mapping(const Value& value) { return value.dict() != nullptr; }
bool is_callable(const Value& value) { return value.callable() != nullptr || value.is_undefined(); }
bool is_sequence(const Value& value) {
  return value.text() != nullptr || value.dict() != nullptr || value.is_undefined() ||
         (value.list() != nullptr && value.list()->is_indexed());
}
bool is_iterable(const Value& value) {
  return value.text() != nullptr || value.dict() != nullptr || value.list() != nullptr || value.is_undefined();
}

Value remainder(Interpreter& interpreter, const Value& self, int64_t by) {
  return operate("%", self, by, interpreter.meter());
}
Value is_odd(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("odd", {}, interpreter.meter());
  return equals(remainder(interpreter, self, 2), int64_t{1}, interpreter.meter());
}
Value is_even(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("even", {}, interpreter.meter());
  return equals(remainder(interpreter, self, 2), int64_t{0}, interpreter.meter());
}
Value is_divisible(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto [by] = arguments.bind<1>("divisibleby", {"num"}, interpreter.meter());
  const int64_t divisor = whole_argument(by, "divisibleby: num", interpreter.meter());
  return equals(remainder(interpreter, self, divisor), int64_t{0}, interpreter.meter());
}

template <bool (*holds)(std::string_view)>
Value has_letter_case(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  arguments.bind<0>("lower, upper", {}, interpreter.meter());
  return holds(to_text(self, interpreter.meter()).bytes());
}

using Comparison = bool (*)(const Value& value, const Value& other, Meter& meter);

template <Comparison comparison>
Value compare(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto [other] = arguments.bind<1>("this test", {"other"}, interpreter.meter());
  if (!other) interpreter.meter().fail("this test compares with a value, which is missing");
  return comparison(self, *other, interpreter.meter());
}

bool is_not_equal(const Value& a, const Value& b, Meter& meter) { return !equals(a, b, meter); }
bool is_greater(const Value& a, const Value& b, Meter& meter) { return is_less(b, a, meter); }
bool is_at_most(const Value& a, const Value& b, Meter& meter) { return is_less(a, b, meter) || equals(a, b, meter); }
bool is_at_least(const Value& a, const Value& b, Meter& meter) { return is_at_most(b, a, meter); }
bool is_in(const Value& a, const Value& b, Meter& meter) { return contains(b, a, meter); }
bool is_same_object(const Value& a, const Value& b, Meter&) { return a.is_same(b); }

}  // namespace

Builtin find_value_test(std::string_view name) {
  static constexpr std::pair<std::string_view, Builtin> kTests[] = {{"defined", ask<is_defined>},
                                                                    {"undefined", ask<is_undefined>},
                                                                    {"none", ask<is_none>},
                                                                    {"boolean", ask<is_boolean>},
                                                                    {"true", ask<is_true>},
                                                                    {"false", ask<is_false>},
                                                                    {"integer", ask<is_integer>},
                                                                    {"float", ask<is_float>},
                                                                    {"number", ask<is_number>},
                                                                    {"string", ask<is_string>},
                                                                    {"mapping", ask<is_mapping>},
                                                                    {"sequence", ask<is_sequence>},
                                                                    {"iterable", ask<is_iterable>},
                                                                    {"callable", ask<is_callable>},
                                                                    {"odd", is_odd},
                                                                    {"even", is_even},
                                                                    {"divisibleby", is_divisible},
                                                                    {"lower", has_letter_case<is_lower>},
                                                                    {"upper", has_letter_case<is_upper>},
                                                                    {"eq", compare<equals>},
                                                                    {"equalto", compare<equals>},
                                                                    {"==", compare<equals>},
                                                                    {"ne", compare<is_not_equal>},
                                                                    {"!=", compare<is_not_equal>},
                                                                    {"lt", compare<is_less>},
                                                                    {"lessthan", compare<is_less>},
                                                                    {"<", compare<is_less>},
                                                                    {"gt", compare<is_greater>},
                                                                    {"greaterthan", compare<is_greater>},
                                                                    {">", compare<is_greater>},
                                                                    {"le", compare<is_at_most>},
                                                                    {"<=", compare<is_at_most>},
                                                                    {"ge", compare<is_at_least>},
                                                                    {">=", compare<is_at_least>},
                                                                    {"in", compare<is_in>},
                                                                    {"sameas", compare<is_same_object>}};
  return find_in(kTests, name);
}

}  // namespace tutti::jinja
