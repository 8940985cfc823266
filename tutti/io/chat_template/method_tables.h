// Tables of functions by name.
#pragma once

#include <string_view>
#include <utility>

#include "tutti/io/chat_template/callable.h"

namespace tutti::jinja {

template <size_t N>
Builtin find_in(const std::pair<std::string_view, Builtin> (&table)[N], std::string_view name) {
  for (const auto& [key, builtin] : table)
    if (key == name) return builtin;
  return nullptr;
}

Builtin find_text_method(std::string_view name);

}  // namespace tutti::jinja
