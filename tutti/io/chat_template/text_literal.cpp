#include "tutti/io/chat_template/text_literal.h"

#include <fmt/core.h>

#include <charconv>

#include "tutti/io/utf8.h"

namespace tutti::jinja {
namespace {

// Reads `digits` hexadecimal digits (or up to 3 octal ones, base 8) at `at` and moves behind them; -1 when there are
// none.
int64_t read_code(std::string_view text, size_t& at, size_t digits, int base) {
  uint32_t code = 0;
  const std::string_view written = text.substr(at, digits);
  const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), code, base);
  const auto read = static_cast<size_t>(end - written.data());
  if (error != std::errc() || (base == 16 && read != digits)) return -1;
  at += read;
  return code;
}

}  // namespace

TextLiteral read_text_literal(std::string_view written) {
  static constexpr std::string_view kPlain = "\\'\"abfnrtv", kPlainMeans = "\\'\"\a\b\f\n\r\t\v";
  TextLiteral made;
  for (size_t at = 0; at < written.size();) {
    const char c = written[at++];
    if (c != '\\') {
      made.text += c;
      continue;
    }
    const char escape = written[at++];  // the lexer lets no text end with a single backslash
    int64_t code = 0;
    if (const size_t plain = kPlain.find(escape); plain != std::string_view::npos) {
      made.text += kPlainMeans[plain];
      continue;
    }
    if (escape == '\n') continue;
    if (escape == 'x') code = read_code(written, at, 2, 16);
    else if (escape == 'u') code = read_code(written, at, 4, 16);
    else if (escape == 'U') code = read_code(written, at, 8, 16);
    else if (escape >= '0' && escape <= '7') code = read_code(written, --at, 3, 8);
    else if (escape == 'N') return {.text = {}, .fault = "the escape \\N in a text is not supported"};
    else {
      made.text += '\\';
      made.text += escape;
      continue;
    }
    if (code < 0) return {.text = {}, .fault = fmt::format("the escape \\{} in a text lacks digits", escape)};
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      return {.text = {}, .fault = fmt::format("the escape \\{} in a text is no character: {:X}", escape, code)};
    io::utf8_append(static_cast<uint32_t>(code), made.text);
  }
  return made;
}

}  // namespace tutti::jinja
