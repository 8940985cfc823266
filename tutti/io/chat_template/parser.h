// Parses templates. What is not supported is refused here by name wherever it can be seen.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tutti/io/chat_template/lexer.h"
#include "tutti/io/chat_template/meter.h"
#include "tutti/io/chat_template/syntax.h"

namespace tutti::jinja {

// Expressions and parsing deeper than this are refused, so that neither the parser nor the interpreter recurses deeply.
// A pair of brackets takes up to four levels of the parser.
constexpr int kMostTreeDepth = 100;
constexpr int kMostParserDepth = 300;
// This bounds the search of arguments by name.
constexpr size_t kMostArguments = 255;

class Parser {
 public:
  Parser(std::string_view source, std::string_view name, const ChatTemplateLimits& limits);

  Template run();

 private:
  // Statements; in statement_parser.cpp.
  Block parse_block(std::initializer_list<std::string_view> ends);
  Statement parse_statement();
  Statement parse_output();
  Statement parse_set();
  Statement parse_for();
  Statement parse_if();
  Statement parse_with();
  Statement parse_macro();
  Statement parse_filter_block();
  Statement parse_generation();
  std::vector<Target> parse_targets(bool takes_attributes, bool& is_tuple);
  Block parse_capture(std::string_view end);
  void close_tag();

  // Expressions; in expression_parser.cpp.
  ExpressionPtr parse_expression(bool takes_conditional = true);
  ExpressionPtr parse_tuple(bool takes_conditional = true);
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool takes_filters = true);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_bracket();
  ExpressionPtr parse_postfix(ExpressionPtr operand);
  ExpressionPtr parse_filters(ExpressionPtr operand);
  ExpressionPtr parse_filter(ExpressionPtr operand);
  ExpressionPtr parse_test(ExpressionPtr operand);
  ExpressionPtr parse_subscript(ExpressionPtr operand);
  void parse_arguments(Expression& call);
  bool is_tuple_end() const;

  ExpressionPtr make(ExpressionKind kind, int line) const;
  void add_part(Expression& whole, ExpressionPtr part);
  ExpressionPtr joined(ExpressionKind kind, std::string symbol, ExpressionPtr left, ExpressionPtr right);

  const Token& token() const { return tokens_[at_]; }
  const Token& token_behind() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take();
  bool take_symbol(std::string_view symbol);
  bool take_name(std::string_view name);
  void expect_symbol(std::string_view symbol);
  std::string expect_name(std::string_view what);
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
    meter_.line = token().line;
    meter_.fail(message, std::forward<Args>(args)...);
  }

  // Counts the recursion of the parser itself.
  struct Level {
    explicit Level(Parser& parser);
    ~Level() { --parser.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Parser& parser;
  };

  Meter meter_;
  ChatTemplateLimits limits_;
  std::string name_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;           // that break and continue may leave
  bool is_nested_ = false;  // inside a loop, macro or captured block
  bool is_in_macro_ = false;
  bool has_generation_ = false;
};

}  // namespace tutti::jinja
