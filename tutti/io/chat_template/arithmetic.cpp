#include "tutti/io/chat_template/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tutti/io/chat_template/meter.h"
#include "tutti/io/chat_template/python_text.h"

namespace tutti::jinja {
namespace {

// Python divides towards minus infinity; the remainder has the sign of the divisor.
int64_t floor_divided(int64_t a, int64_t b) { return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0); }
double float_remainder(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value whole_power(int64_t base, int64_t exponent, Meter& meter) {
  if (exponent < 0) return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  int64_t power = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    meter.step();
    if (__builtin_mul_overflow(power, base, &power)) meter.fail("{} ** {} does not fit 64 bits", base, exponent);
  }
  return power;
}

Value whole_result(std::string_view symbol, int64_t a, int64_t b, Meter& meter) {
  int64_t result = 0;
  bool overflows = false;
  if (symbol == "+") overflows = __builtin_add_overflow(a, b, &result);
  else if (symbol == "-") overflows = __builtin_sub_overflow(a, b, &result);
  else if (symbol == "*") overflows = __builtin_mul_overflow(a, b, &result);
  else if (symbol == "**") return whole_power(a, b, meter);
  else {
    if (b == 0) meter.fail("{} {} 0: division by zero", a, symbol);
    if (symbol == "/") return static_cast<double>(a) / static_cast<double>(b);
    if (b == -1) {
      if (symbol == "%") return int64_t{0};
      overflows = __builtin_sub_overflow(int64_t{0}, a, &result);
    } else {
      const int64_t quotient = floor_divided(a, b);
      result = symbol == "//" ? quotient : a - quotient * b;
    }
  }
  if (overflows) meter.fail("{} {} {} does not fit 64 bits", a, symbol, b);
  return result;
}

Value real_result(std::string_view symbol, double a, double b, Meter& meter) {
  if (symbol == "+") return a + b;
  if (symbol == "-") return a - b;
  if (symbol == "*") return a * b;
  if (symbol == "**") {
    if ((a == 0 && b < 0) || (a < 0 && std::floor(b) != b)) meter.fail("{} ** {} is no real number", a, b);
    return std::pow(a, b);
  }
  if (b == 0) meter.fail("{} {} 0: division by zero", a, symbol);
  if (symbol == "/") return a / b;
  const double rest = float_remainder(a, b);
  return symbol == "%" ? rest : std::floor((a - rest) / b + 0.5);
}

Value joined_texts(const MarkedText& a, const MarkedText& b, Meter& meter) {
  meter.text(a.size() + b.size());
  const bool is_markup = a.is_markup || b.is_markup;
  MarkedText made = is_markup && !a.is_markup ? html_escaped(a) : a;
  if (is_markup && !b.is_markup) made.append(html_escaped(b));
  else made.append(b);
  made.is_markup = is_markup;
  return made;
}

Value repeated(const Value& value, int64_t count, Meter& meter) {
  count = std::max<int64_t>(count, 0);
  if (const MarkedText* text = value.text()) {
    if (!text->is_empty() && count > static_cast<int64_t>(meter.most_text_nbytes() / text->size()))
      meter.text(meter.most_text_nbytes() + 1);
    if (text->is_empty()) count = 0;
    meter.text(text->size() * static_cast<size_t>(count));
    MarkedText made;
    for (int64_t i = 0; i < count; ++i) made.append(*text);
    return made;
  }
  const List& list = *value.list();
  const auto size = std::ssize(list.items);
  if (size == 0) count = 0;
  if (int64_t total = 0; __builtin_mul_overflow(count, size, &total)) meter.values(std::numeric_limits<size_t>::max());
  else meter.values(static_cast<size_t>(total));
  std::vector<Value> items;
  for (int64_t i = 0; i < count; ++i) items.insert(items.end(), list.items.begin(), list.items.end());
  return List(std::move(items), list.kind);
}

bool is_sequence(const Value& value) {
  return value.text() != nullptr || (value.list() != nullptr && value.list()->kind <= ListKind::tuple);
}

}  // namespace

Value operate(std::string_view symbol, const Value& a, const Value& b, Meter& meter) {
  if (a.is_undefined() || b.is_undefined()) meter.fail_with((a.is_undefined() ? a : b).hint());
  if (const auto x = a.integer(), y = b.integer(); x && y) return whole_result(symbol, *x, *y, meter);
  if (const auto x = a.real(), y = b.real(); x && y) return real_result(symbol, *x, *y, meter);
  if (symbol == "+") {
    if (a.text() != nullptr && b.text() != nullptr) return joined_texts(*a.text(), *b.text(), meter);
    const List *x = a.list(), *y = b.list();
    if (x != nullptr && y != nullptr && x->kind == y->kind && x->kind <= ListKind::tuple) {
      meter.values(x->items.size() + y->items.size());
      std::vector<Value> items = x->items;
      items.insert(items.end(), y->items.begin(), y->items.end());
      return List(std::move(items), x->kind);
    }
  }
  if (symbol == "*") {
    if (const auto count = b.integer(); count && is_sequence(a)) return repeated(a, *count, meter);
    if (const auto count = a.integer(); count && is_sequence(b)) return repeated(b, *count, meter);
  }
  if (symbol == "%" && a.text() != nullptr) meter.fail("the operator % on a text is not supported");
  meter.fail("the operator {} does not take a {} and a {}", symbol, a.type_name(), b.type_name());
}

Value negated(const Value& value, Meter& meter) {
  if (value.is_undefined()) meter.fail_with(value.hint());
  if (const auto whole = value.integer()) return whole_result("-", 0, *whole, meter);
  if (const double* number = value.number()) return -*number;
  meter.fail("the operator - does not take a {}", value.type_name());
}

bool contains(const Value& container, const Value& value, Meter& meter) {
  if (const MarkedText* text = container.text()) {
    if (value.text() == nullptr)
      meter.fail("'in' looks for a {} in a text; only a text can be there", value.type_name());
    meter.text(text->size() + value.text()->size());
    return find_text(text->bytes(), value.text()->bytes(), 0) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    if (!key_of(value)) meter.fail("a {} cannot be a key", value.type_name());
    return dict->find(value, meter) != nullptr;
  }
  if (container.list() == nullptr && !container.is_undefined())
    meter.fail("'in' looks into a {}, which holds nothing", container.type_name());
  for (const Value& item : iterate(container, meter))
    if (equals(item, value, meter)) return true;
  return false;
}

}  // namespace tutti::jinja
