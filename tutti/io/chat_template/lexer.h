// Divides a template into text, tags and the tokens inside tags, as Jinja2 does with trim_blocks and lstrip_blocks on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::jinja {

enum class TokenKind {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  text,
  whole,
  number,
  symbol,
  end
};

struct Token {
  TokenKind kind;
  // Data and texts as they print; names, numbers and symbols as they are written.
  std::string text;
  int line;

  bool is_symbol(std::string_view wanted) const { return kind == TokenKind::symbol && text == wanted; }
  bool is_name(std::string_view wanted) const { return kind == TokenKind::name && text == wanted; }
  // For messages.
  std::string shown() const;
};

// Ends with a token of kind end. UsageError, naming `name` and the line.
std::vector<Token> tokenize(std::string_view source, std::string_view name);

}  // namespace tutti::jinja
