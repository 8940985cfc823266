// Enums in attrs: a file whose attrs have one includes this.
#pragma once

#include <array>
#include <string>
#include <utility>

#include "tutti/ops/engine/attr_values.h"

namespace tutti {

namespace enumerators {
inline constexpr int64_t kMost = 32;  // they are below

struct Enumerator {
  int64_t value;
  std::string_view name;
};

template <auto kValue>
constexpr std::string_view name() {
  std::string_view text = __PRETTY_FUNCTION__;  // "... [with auto kValue = tutti::Mode::wide; ...]", or
                                                // "(tutti::Mode)7" where 7 has no name
  text = text.substr(text.find("kValue = ") + 9);
  if (text.front() == '(') return "";
  text = text.substr(0, text.find_first_of(";]"));
  return text.substr(text.rfind(':') + 1);
}
template <class T, int64_t... kValue>
constexpr auto list(std::integer_sequence<int64_t, kValue...>) {
  constexpr std::string_view names[] = {name<static_cast<T>(kValue)>()...};
  constexpr size_t count = static_cast<size_t>((int{!names[kValue].empty()} + ...));
  static_assert(count > 0, "an enum in attrs has enumerators from 0 to 31");
  std::array<Enumerator, count> found{};
  size_t i = 0;
  for (int64_t value = 0; value < kMost; ++value) {
    if (!names[value].empty()) found[i++] = {value, names[value]};
  }
  return found;
}
// All of T.
template <class T>
inline constexpr auto kOf = list<T>(std::make_integer_sequence<int64_t, kMost>{});
}  // namespace enumerators

// Printed as its number; text with a number that no enumerator has is refused.
template <class T>
  requires std::is_enum_v<T>
struct FieldValue<T> : PlainFieldValue {
  static constexpr bool kIsEnum = true;
  static void print(T v, std::string& out) { out += std::to_string(static_cast<int64_t>(v)); }
  static void parse(FieldReader& reader, T& v) {
    constexpr auto& all = enumerators::kOf<T>;
    v = static_cast<T>(all[reader.one_of(all.size(), [](size_t i) {
                         return std::to_string(all[i].value) + " (" + std::string(all[i].name) + ")";
                       })].value);
  }
  static uint64_t hash(T v) { return static_cast<uint64_t>(v); }
  static bool equal(T a, T b) { return a == b; }
};

}  // namespace tutti
