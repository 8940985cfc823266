// The values of templates, which are those of Python: none, bool, int, float, str, list, dict and what templates make.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/io/chat_template/marked_text.h"

namespace tutti::jinja {

class Meter;
class Value;
struct List;
struct Dict;
struct Namespace;
struct Callable;
struct LoopState;

// A name or key without a value. It prints nothing, is false and empty; `hint` says what is missing.
struct Undefined {
  std::shared_ptr<const std::string> hint;
};
struct None {};

// Immutable but for namespaces; copies share. int64 stands for Python's integers, which are refused where they are
// larger.
class Value {
 public:
  Value() : value_(None{}) {}
  Value(bool truth) : value_(truth) {}                                   // NOLINT: a bool is one
  Value(int64_t whole) : value_(whole) {}                                // NOLINT: an int is one
  Value(double number) : value_(number) {}                               // NOLINT: a float is one
  Value(MarkedText text);                                                // NOLINT: a str is one
  Value(List list);                                                      // NOLINT: a list is one
  Value(Dict dict);                                                      // NOLINT: a dict is one
  Value(Callable callable);                                              // NOLINT: a function is one
  Value(std::shared_ptr<Namespace> names) : value_(std::move(names)) {}  // NOLINT: a namespace is one
  Value(std::shared_ptr<LoopState> loop) : value_(std::move(loop)) {}    // NOLINT: `loop` is one
  static Value undefined(std::string hint);
  static Value of_text(std::string_view bytes, Marks marks = 0);

  bool is_undefined() const { return std::holds_alternative<Undefined>(value_); }
  bool is_none() const { return std::holds_alternative<None>(value_); }
  // nullptr when the value has another type.
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const int64_t* whole() const { return std::get_if<int64_t>(&value_); }
  const double* number() const { return std::get_if<double>(&value_); }
  const MarkedText* text() const { return shared<const MarkedText>(); }
  const List* list() const { return shared<const List>(); }
  const Dict* dict() const { return shared<const Dict>(); }
  const Callable* callable() const { return shared<const Callable>(); }
  Namespace* names() const { return shared<Namespace>(); }
  LoopState* loop() const { return shared<LoopState>(); }
  const std::string& hint() const { return *std::get<Undefined>(value_).hint; }

  // The integer of an int or bool.
  std::optional<int64_t> integer() const;
  // The number of an int, bool or float.
  std::optional<double> real() const;
  // What Python's bool() gives.
  bool is_true() const;
  // The name of the type in Python.
  std::string_view type_name() const;
  // How deeply lists and mappings are nested in it.
  int depth() const;
  // Whether both are the same object, or equal constants: Python's `is`.
  bool is_same(const Value& other) const;

 private:
  template <class T>
  T* shared() const {
    const auto* pointer = std::get_if<std::shared_ptr<T>>(&value_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  std::variant<None, Undefined, bool, int64_t, double, std::shared_ptr<const MarkedText>, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<const Callable>, std::shared_ptr<Namespace>,
               std::shared_ptr<LoopState>>
      value_;
};

// Nesting beyond this is refused, so that no recursion over a value is deep. Making such a value throws NestingTooDeep,
// which ChatTemplate::render turns into an error that names the line.
constexpr int kMostNesting = 200;
struct NestingTooDeep {};

// The types of Python that hold values in order.
enum class ListKind { list, tuple, range, generator, keys, values, items };

struct List {
  explicit List(std::vector<Value> items = {}, ListKind kind = ListKind::list);

  std::vector<Value> items;
  ListKind kind;
  int depth = 1;
  mutable bool is_exhausted = false;  // a generator gives its values once

  // Has positions and a length: list, tuple and range.
  bool is_indexed() const { return kind == ListKind::list || kind == ListKind::tuple || kind == ListKind::range; }
};

// Keeps the order in which keys were added.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, size_t> places;  // by key_of
  int depth = 1;

  // The value of a key; nullptr when there is none.
  const Value* find(const Value& key, Meter& meter) const;
  const Value* find(std::string_view name) const;
  // Adds the entry or replaces its value. UsageError for a key that Python cannot hash, or is not supported.
  void set(const Value& key, Value value, Meter& meter);
};

// Keys are equal when this is; nothing for values that are no keys here.
std::optional<std::string> key_of(const Value& key);

struct Namespace {
  std::map<std::string, Value, std::less<>> entries;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

// Python's == and <. UsageError when the types have no order.
bool equals(const Value& a, const Value& b, Meter& meter);
bool is_less(const Value& a, const Value& b, Meter& meter);
// The values that iteration gives. UsageError, naming the type, when Python cannot iterate over it.
std::vector<Value> iterate(const Value& value, Meter& meter);
// len(); nothing when Python has none.
std::optional<int64_t> length_of(const Value& value);

}  // namespace tutti::jinja
