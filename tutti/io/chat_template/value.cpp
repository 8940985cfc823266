#include "tutti/io/chat_template/value.h"

#include <algorithm>
#include <cmath>

#include "tutti/io/chat_template/callable.h"
#include "tutti/io/chat_template/loop_state.h"
#include "tutti/io/chat_template/meter.h"
#include "tutti/io/utf8.h"

namespace tutti::jinja {

Value::Value(MarkedText text) : value_(std::make_shared<const MarkedText>(std::move(text))) {}
Value::Value(List list) : value_(std::make_shared<const List>(std::move(list))) {}
Value::Value(Dict dict) : value_(std::make_shared<const Dict>(std::move(dict))) {}
Value::Value(Callable callable) : value_(std::make_shared<const Callable>(std::move(callable))) {}

Value Value::undefined(std::string hint) {
  Value made;
  made.value_ = Undefined{std::make_shared<const std::string>(std::move(hint))};
  return made;
}

Value Value::of_text(std::string_view bytes, Marks marks) { return MarkedText(bytes, marks); }

int Value::depth() const {
  if (const List* values = list()) return values->depth;
  return dict() == nullptr ? 0 : dict()->depth;
}

List::List(std::vector<Value> given, ListKind its_kind) : items(std::move(given)), kind(its_kind) {
  for (const Value& item : items) depth = std::max(depth, item.depth() + 1);
  if (depth > kMostNesting) throw NestingTooDeep();
}

std::optional<int64_t> Value::integer() const {
  if (const bool* truth = boolean()) return *truth ? 1 : 0;
  if (const int64_t* value = whole()) return *value;
  return std::nullopt;
}

std::optional<double> Value::real() const {
  if (const double* value = number()) return *value;
  if (const auto value = integer()) return static_cast<double>(*value);
  return std::nullopt;
}

bool Value::is_true() const {
  if (is_none() || is_undefined()) return false;
  if (const auto value = real()) return *value != 0;
  // Python's generators are true, whether anything comes or not.
  if (const List* values = list()) return values->kind == ListKind::generator || !values->items.empty();
  if (const Dict* entries = dict()) return !entries->entries.empty();
  if (const MarkedText* bytes = text()) return !bytes->is_empty();
  return true;
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (boolean() != nullptr) return "bool";
  if (whole() != nullptr) return "int";
  if (number() != nullptr) return "float";
  if (text() != nullptr) return "str";
  if (dict() != nullptr) return "dict";
  if (const List* values = list()) {
    static constexpr std::string_view kNames[] = {"list",      "tuple",       "range",     "generator",
                                                  "dict_keys", "dict_values", "dict_items"};
    return kNames[static_cast<int>(values->kind)];
  }
  if (names() != nullptr) return "Namespace";
  return loop() != nullptr ? "LoopContext" : "function";
}

bool Value::is_same(const Value& other) const {
  if (value_.index() != other.value_.index()) return false;
  if (is_none()) return true;
  if (const bool* truth = boolean()) return *truth == *other.boolean();
  if (const int64_t* value = whole()) return *value == *other.whole();
  const auto address = [](const Value& value) -> const void* {
    if (value.text() != nullptr) return value.text();
    if (value.list() != nullptr) return value.list();
    if (value.dict() != nullptr) return value.dict();
    return value.names() != nullptr ? static_cast<const void*>(value.names()) : value.loop();
  };
  return address(*this) != nullptr && address(*this) == address(other);
}

std::optional<std::string> key_of(const Value& key) {
  if (const MarkedText* text = key.text()) return "s" + text->bytes();
  if (key.is_none()) return "z";
  if (key.is_undefined()) return "u";
  if (const auto whole = key.integer()) return fmt::format("i{}", *whole);
  if (const double* number = key.number()) {
    if (std::floor(*number) == *number && std::abs(*number) < 9e18)
      return fmt::format("i{}", static_cast<int64_t>(*number));
    return fmt::format("f{}", *number);
  }
  return std::nullopt;
}

const Value* Dict::find(const Value& key, Meter& meter) const {
  if (key.text() != nullptr) meter.text(key.text()->size());
  const auto name = key_of(key);
  if (!name) return nullptr;
  const auto found = places.find(*name);
  return found == places.end() ? nullptr : &entries[found->second].second;
}

const Value* Dict::find(std::string_view name) const {
  const auto found = places.find("s" + std::string(name));
  return found == places.end() ? nullptr : &entries[found->second].second;
}

void Dict::set(const Value& key, Value value, Meter& meter) {
  if (key.text() != nullptr) meter.text(key.text()->size());
  const auto name = key_of(key);
  if (!name) meter.fail("a {} as the key of a dict is not supported", key.type_name());
  depth = std::max(depth, value.depth() + 1);
  if (depth > kMostNesting) throw NestingTooDeep();
  const auto [place, is_new] = places.emplace(*name, entries.size());
  if (is_new) entries.emplace_back(key, std::move(value));
  else entries[place->second].second = std::move(value);
}

const Value* Namespace::find(std::string_view name) const {
  const auto found = entries.find(name);
  return found == entries.end() ? nullptr : &found->second;
}

void Namespace::set(std::string_view name, Value value) {
  entries.insert_or_assign(std::string(name), std::move(value));
}

bool equals(const Value& a, const Value& b, Meter& meter) {
  meter.step();
  if (const auto number = a.real()) {
    const auto other = b.real();
    const auto x = a.integer(), y = b.integer();
    return x && y ? *x == *y : other && *number == *other;
  }
  if (a.is_none() || a.is_undefined()) return a.is_none() ? b.is_none() : b.is_undefined();
  if (const MarkedText* text = a.text()) {
    if (b.text() == nullptr || text->size() != b.text()->size()) return false;
    meter.text(text->size());
    return text->bytes() == b.text()->bytes();
  }
  if (const List* list = a.list(); list != nullptr && list->is_indexed()) {
    const List* other = b.list();
    if (other == nullptr || other->kind != list->kind || other->items.size() != list->items.size()) return false;
    for (size_t i = 0; i < list->items.size(); ++i)
      if (!equals(list->items[i], other->items[i], meter)) return false;
    return true;
  }
  if (const Dict* dict = a.dict()) {
    const Dict* other = b.dict();
    if (other == nullptr || other->entries.size() != dict->entries.size()) return false;
    for (const auto& [key, value] : dict->entries) {
      const Value* theirs = other->find(key, meter);
      if (theirs == nullptr || !equals(value, *theirs, meter)) return false;
    }
    return true;
  }
  return a.is_same(b);
}

bool is_less(const Value& a, const Value& b, Meter& meter) {
  meter.step();
  if (a.is_undefined() || b.is_undefined()) meter.fail_with((a.is_undefined() ? a : b).hint());
  if (const auto x = a.integer(), y = b.integer(); x && y) return *x < *y;
  if (const auto x = a.real(), y = b.real(); x && y) return *x < *y;
  // The order of the bytes of UTF-8 is that of the code points.
  if (a.text() != nullptr && b.text() != nullptr) {
    meter.text(std::min(a.text()->size(), b.text()->size()));
    return a.text()->bytes() < b.text()->bytes();
  }
  const List *x = a.list(), *y = b.list();
  if (x == nullptr || y == nullptr || x->kind != y->kind || x->kind > ListKind::tuple)
    meter.fail("a {} and a {} have no order", a.type_name(), b.type_name());
  for (size_t i = 0; i < std::min(x->items.size(), y->items.size()); ++i)
    if (!equals(x->items[i], y->items[i], meter)) return is_less(x->items[i], y->items[i], meter);
  return x->items.size() < y->items.size();
}

std::vector<Value> iterate(const Value& value, Meter& meter) {
  std::vector<Value> items;
  if (const List* list = value.list()) {
    if (list->is_exhausted) return items;
    list->is_exhausted = list->kind == ListKind::generator;
    meter.step(std::ssize(list->items));
    return list->items;
  }
  if (const Dict* dict = value.dict()) {
    meter.step(std::ssize(dict->entries));
    for (const auto& entry : dict->entries) items.push_back(entry.first);
  } else if (const MarkedText* text = value.text()) {
    meter.values(text->size());
    const std::string_view bytes = text->bytes();
    for (size_t at = 0; at < bytes.size();) {
      const size_t nbytes = std::max<size_t>(io::utf8_sequence_nbytes(bytes.substr(at)), 1);
      items.emplace_back(text->slice(at, at + nbytes));
      at += nbytes;
    }
  } else if (!value.is_undefined()) {
    meter.fail("a {} cannot be iterated over", value.type_name());
  }
  return items;
}

std::optional<int64_t> length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const MarkedText* text = value.text())
    return std::count_if(text->bytes().begin(), text->bytes().end(), [](char c) { return (c & 0xC0) != 0x80; });
  if (const Dict* dict = value.dict()) return std::ssize(dict->entries);
  if (const List* list = value.list(); list != nullptr && list->kind != ListKind::generator)
    return std::ssize(list->items);
  return std::nullopt;
}

}  // namespace tutti::jinja
