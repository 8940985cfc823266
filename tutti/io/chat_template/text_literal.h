// The texts in tags, whose escapes are those of Python.
#pragma once

#include <string>
#include <string_view>

namespace tutti::jinja {

struct TextLiteral {
  std::string text;
  std::string fault;  // what is wrong with it; empty when nothing is
};

// What stands between the quotes.
TextLiteral read_text_literal(std::string_view written);

}  // namespace tutti::jinja
