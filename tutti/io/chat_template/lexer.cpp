#include "tutti/io/chat_template/lexer.h"

#include <algorithm>
#include <cctype>

#include "tutti/core/error.h"
#include "tutti/io/chat_template/marked_text.h"
#include "tutti/io/chat_template/python_text.h"
#include "tutti/io/chat_template/text_literal.h"
#include "tutti/io/utf8.h"

namespace tutti::jinja {
namespace {

// \r\n and \r become \n, and one line end at the end goes.
std::string with_plain_lines(std::string_view source) {
  std::string plain;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') plain += source[i];
    else if (i + 1 == source.size() || source[i + 1] != '\n') plain += '\n';
  }
  if (plain.ends_with('\n')) plain.pop_back();
  return plain;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view name) : name_(name), source_(with_plain_lines(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t begin = next_tag(at_);
      if (begin == std::string_view::npos) {
        add(TokenKind::data, std::string(rest()));
        break;
      }
      size_t end = 0;  // of {% raw %}, when that is what begins here
      const char kind = source_[begin + 1];
      const bool is_raw = kind == '%' && (end = raw_tag_end(begin, "raw")) != 0;
      const char sign = sign_at(begin + 2);
      add_data(begin, sign, kind != '{' || is_raw);
      if (is_raw) {
        move_to(end);
        raw_text();
      } else {
        move_to(begin + (sign == '\0' ? 2 : 3));
        if (kind == '#') comment();
        else tag(kind == '%');
      }
    }
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool has(std::string_view text) const { return rest().starts_with(text); }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) const {
    throw UsageError(fmt::format("{}:{}: {}", name_, line_, fmt::format(message, std::forward<Args>(args)...)));
  }

  void add(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void move_to(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    begins_line_ = end > at_ ? source_[end - 1] == '\n' : begins_line_;
    at_ = end;
  }

  size_t next_tag(size_t from) const {
    for (size_t at = source_.find('{', from); at != std::string::npos; at = source_.find('{', at + 1)) {
      const char kind = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (kind == '%' || kind == '{' || kind == '#') return at;
    }
    return std::string_view::npos;
  }

  char sign_at(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }

  size_t skip_spaces(size_t at) const {
    while (at < source_.size()) {
      const std::string_view left = std::string_view(source_).substr(at);
      const size_t nbytes = io::utf8_sequence_nbytes(left);
      if (!is_python_space(io::utf8_decode(left.substr(0, nbytes)))) break;
      at += nbytes;
    }
    return at;
  }

  // The end of "{%", a sign, `word`, "%}" at `begin`, with what the signs take; 0 when something else is there.
  size_t raw_tag_end(size_t begin, std::string_view word) const {
    const std::string_view all = source_;
    size_t at = skip_spaces(begin + 2 + (sign_at(begin + 2) == '\0' ? 0 : 1));
    if (!all.substr(at).starts_with(word)) return 0;
    at = skip_spaces(at + word.size());
    if (all.substr(at).starts_with("-%}")) return skip_spaces(at + 3);
    if (all.substr(at).starts_with("%}")) return at + 2 + (word == "endraw" && all.substr(at + 2).starts_with("\n"));
    return word == "endraw" && all.substr(at).starts_with("+%}") ? at + 3 : 0;
  }

  // The text up to `end`, where a tag begins: `sign` and lstrip_blocks take the white space before it.
  void add_data(size_t end, char sign, bool strips_line) {
    const std::string_view all = rest().substr(0, end - at_);
    std::string_view text = all;
    if (sign == '-') {
      text = text.substr(0, stripped(MarkedText(text), std::nullopt, false, true).size());
    } else if (sign == '\0' && strips_line) {
      const size_t line = text.rfind('\n') + 1;
      if ((line > 0 || begins_line_) && stripped(MarkedText(text.substr(line)), std::nullopt, true, false).is_empty())
        text = text.substr(0, line);
    }
    if (!text.empty()) add(TokenKind::data, std::string(text));
    move_to(end);
  }

  void raw_text() {
    for (size_t at = source_.find("{%", at_); at != std::string::npos; at = source_.find("{%", at + 1)) {
      const size_t end = raw_tag_end(at, "endraw");
      if (end == 0) continue;
      add_data(at, sign_at(at + 2), true);
      return move_to(end);
    }
    fail("{{% raw %}} has no {{% endraw %}}");
  }

  void comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) fail("a comment has no end");
    const char sign = end > at_ ? sign_at(end - 1) : '\0';
    if (sign == '-') move_to(skip_spaces(end + 2));
    else move_to(end + 2 + (sign == '\0' && end + 2 < source_.size() && source_[end + 2] == '\n'));
  }

  // The end of the tag here, with what it takes; 0 when this is not the end.
  size_t tag_end(bool is_block) const {
    const std::string_view closing = is_block ? "%}" : "}}";
    if (has(closing)) return at_ + 2 + (is_block && rest().substr(2).starts_with("\n"));
    if (rest().substr(0, 1) == "-" && rest().substr(1).starts_with(closing)) return skip_spaces(at_ + 3);
    return is_block && has("+%}") ? at_ + 3 : 0;
  }

  void tag(bool is_block) {
    add(is_block ? TokenKind::block_begin : TokenKind::variable_begin, "");
    std::string open;  // brackets; a tag does not end inside them
    while (true) {
      const size_t end = open.empty() ? tag_end(is_block) : 0;
      if (end != 0) {
        add(is_block ? TokenKind::block_end : TokenKind::variable_end, "");
        return move_to(end);
      }
      if (at_ == source_.size()) fail("a tag has no end");
      if (const size_t next = skip_spaces(at_); next != at_) move_to(next);
      else if (is_digit(source_[at_])) number();
      else if (is_name_start(source_[at_])) name();
      else if (source_[at_] == '\'' || source_[at_] == '"') text();
      else symbol(open);
    }
  }

  void number() {
    const size_t begin = at_;
    const auto digits = [&](size_t at) {  // groups may be divided by _
      while (at < source_.size() && (is_digit(source_[at]) || (source_[at] == '_' && is_digit(source_[at - 1]) &&
                                                               at + 1 < source_.size() && is_digit(source_[at + 1]))))
        ++at;
      return at;
    };
    const auto digit_at = [&](size_t at) { return at < source_.size() && is_digit(source_[at]); };
    size_t end = digits(begin);
    bool is_float = false;
    if (begin == 0 || source_[begin - 1] != '.') {
      if (end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
        end = digits(end + 1);
        is_float = true;
      }
      if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
        const size_t exponent = end + 1 + (sign_at(end + 1) == '\0' ? 0 : 1);
        if (digit_at(exponent)) {
          end = digits(exponent);
          is_float = true;
        }
      }
    }
    std::string text = source_.substr(begin, end - begin);
    std::erase(text, '_');
    if (!is_float && text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != std::string::npos)
      fail("the integer {} begins with 0", text);
    if (text == "0" && end < source_.size() && std::string_view("xXoObB").find(source_[end]) != std::string_view::npos)
      fail("an integer with the prefix 0{} is not supported", source_[end]);
    add(is_float ? TokenKind::number : TokenKind::whole, std::move(text));
    move_to(end);
  }

  void name() {
    size_t end = at_;
    while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) ++end;
    add(TokenKind::name, source_.substr(at_, end - at_));
    move_to(end);
  }

  void text() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a text has no end");
    const TextLiteral literal = read_text_literal(std::string_view(source_).substr(at_ + 1, end - at_ - 1));
    if (!literal.fault.empty()) fail("{}", literal.fault);
    add(TokenKind::text, literal.text);
    move_to(end + 1);
  }

  void symbol(std::string& open) {
    static constexpr std::string_view kSymbols[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (const std::string_view symbol : kSymbols) {
      if (!has(symbol)) continue;
      const char c = symbol[0];
      if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) fail("unexpected '{}'", c);
        open.pop_back();
      }
      add(TokenKind::symbol, std::string(symbol));
      return move_to(at_ + symbol.size());
    }
    fail("unexpected character '{}' in a tag", rest().substr(0, std::max<size_t>(io::utf8_sequence_nbytes(rest()), 1)));
  }

  std::string_view name_;
  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool begins_line_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string Token::shown() const {
  switch (kind) {
    case TokenKind::data:
      return "text outside of tags";
    case TokenKind::variable_begin:
      return "'{{'";
    case TokenKind::variable_end:
      return "'}}'";
    case TokenKind::block_begin:
      return "'{%'";
    case TokenKind::block_end:
      return "'%}'";
    case TokenKind::end:
      return "the end of the template";
    default:
      return "'" + text + "'";
  }
}

std::vector<Token> tokenize(std::string_view source, std::string_view name) { return Lexer(source, name).run(); }

}  // namespace tutti::jinja
