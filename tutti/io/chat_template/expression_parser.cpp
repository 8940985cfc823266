#include <algorithm>
#include <charconv>

#include "tutti/io/chat_template/parser.h"

namespace tutti::jinja {

Parser::Level::Level(Parser& its_parser) : parser(its_parser) {
  if (++parser.depth_ > kMostParserDepth) {
    --parser.depth_;
    parser.fail("the template is nested too deeply: {} levels are open", kMostParserDepth);
  }
}

Token Parser::take() {
  Token taken = token();
  if (at_ + 1 < tokens_.size()) ++at_;
  return taken;
}

bool Parser::take_symbol(std::string_view symbol) {
  if (!token().is_symbol(symbol)) return false;
  take();
  return true;
}

bool Parser::take_name(std::string_view name) {
  if (!token().is_name(name)) return false;
  take();
  return true;
}

void Parser::expect_symbol(std::string_view symbol) {
  if (!take_symbol(symbol)) fail("expected '{}' instead of {}", symbol, token().shown());
}

std::string Parser::expect_name(std::string_view what) {
  if (token().kind != TokenKind::name) fail("expected {} instead of {}", what, token().shown());
  return take().text;
}

ExpressionPtr Parser::make(ExpressionKind kind, int line) const {
  return std::make_unique<Expression>(Expression{.kind = kind, .line = line});
}

void Parser::add_part(Expression& whole, ExpressionPtr part) {
  if (part != nullptr) whole.depth = std::max(whole.depth, part->depth + 1);
  if (whole.depth > kMostTreeDepth) fail("an expression is nested more than {} deep", kMostTreeDepth);
  whole.parts.push_back(std::move(part));
}

ExpressionPtr Parser::joined(ExpressionKind kind, std::string symbol, ExpressionPtr left, ExpressionPtr right) {
  // The parts of a chain of one operator stand side by side, so that long sums are not deep.
  const bool is_chain = left->kind == kind && left->name == symbol && kind != ExpressionKind::binary;
  const bool is_sum = left->kind == kind && left->name == "+" && symbol == "+";
  if (is_chain || is_sum) {
    add_part(*left, std::move(right));
    return left;
  }
  ExpressionPtr whole = make(kind, left->line);
  whole->name = std::move(symbol);
  add_part(*whole, std::move(left));
  add_part(*whole, std::move(right));
  return whole;
}

ExpressionPtr Parser::parse_expression(bool takes_conditional) {
  const Level level(*this);
  ExpressionPtr value = parse_or();
  while (takes_conditional && token().is_name("if")) {
    const int line = take().line;
    ExpressionPtr choice = make(ExpressionKind::conditional, line);
    add_part(*choice, parse_or());
    add_part(*choice, std::move(value));
    add_part(*choice, take_name("else") ? parse_expression() : nullptr);
    value = std::move(choice);
  }
  return value;
}

bool Parser::is_tuple_end() const {
  const Token& next = token();
  return next.kind == TokenKind::variable_end || next.kind == TokenKind::block_end || next.is_symbol(")") ||
         next.is_name("recursive");
}

ExpressionPtr Parser::parse_tuple(bool takes_conditional) {
  const Level level(*this);
  ExpressionPtr first = parse_expression(takes_conditional);
  if (!token().is_symbol(",")) return first;
  ExpressionPtr tuple = make(ExpressionKind::tuple, first->line);
  add_part(*tuple, std::move(first));
  while (take_symbol(",") && !is_tuple_end()) add_part(*tuple, parse_expression(takes_conditional));
  return tuple;
}

ExpressionPtr Parser::parse_or() {
  ExpressionPtr left = parse_and();
  while (take_name("or")) left = joined(ExpressionKind::disjunction, "", std::move(left), parse_and());
  return left;
}

ExpressionPtr Parser::parse_and() {
  ExpressionPtr left = parse_not();
  while (take_name("and")) left = joined(ExpressionKind::conjunction, "", std::move(left), parse_not());
  return left;
}

ExpressionPtr Parser::parse_not() {
  const Level level(*this);
  if (!token().is_name("not")) return parse_compare();
  ExpressionPtr whole = make(ExpressionKind::negation, take().line);
  add_part(*whole, parse_not());
  return whole;
}

ExpressionPtr Parser::parse_compare() {
  ExpressionPtr left = parse_sum();
  ExpressionPtr whole = make(ExpressionKind::compare, left->line);
  add_part(*whole, std::move(left));
  while (true) {
    const Token& next = token();
    if (next.is_symbol("==") || next.is_symbol("!=") || next.is_symbol("<") || next.is_symbol("<=") ||
        next.is_symbol(">") || next.is_symbol(">=") || next.is_name("in")) {
      whole->symbols.push_back(take().text);
    } else if (next.is_name("not") && token_behind().is_name("in")) {
      take();
      take();
      whole->symbols.emplace_back("not in");
    } else {
      break;
    }
    add_part(*whole, parse_sum());
  }
  return whole->symbols.empty() ? std::move(whole->parts[0]) : std::move(whole);
}

ExpressionPtr Parser::parse_sum() {
  ExpressionPtr left = parse_concat();
  while (token().is_symbol("+") || token().is_symbol("-")) {
    std::string symbol = take().text;
    left = joined(ExpressionKind::binary, std::move(symbol), std::move(left), parse_concat());
  }
  return left;
}

ExpressionPtr Parser::parse_concat() {
  ExpressionPtr left = parse_product();
  if (!token().is_symbol("~")) return left;
  ExpressionPtr whole = make(ExpressionKind::concat, left->line);
  add_part(*whole, std::move(left));
  while (take_symbol("~")) add_part(*whole, parse_product());
  return whole;
}

ExpressionPtr Parser::parse_product() {
  ExpressionPtr left = parse_power();
  while (token().is_symbol("*") || token().is_symbol("/") || token().is_symbol("//") || token().is_symbol("%")) {
    std::string symbol = take().text;
    left = joined(ExpressionKind::binary, std::move(symbol), std::move(left), parse_power());
  }
  return left;
}

ExpressionPtr Parser::parse_power() {
  ExpressionPtr left = parse_unary();
  while (take_symbol("**")) left = joined(ExpressionKind::binary, "**", std::move(left), parse_unary());
  return left;
}

ExpressionPtr Parser::parse_unary(bool takes_filters) {
  const Level level(*this);
  ExpressionPtr value;
  if (token().is_symbol("-") || token().is_symbol("+")) {
    value = make(token().is_symbol("-") ? ExpressionKind::minus : ExpressionKind::plus, token().line);
    take();
    add_part(*value, parse_unary(false));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return takes_filters ? parse_filters(std::move(value)) : std::move(value);
}

ExpressionPtr Parser::parse_primary() {
  ExpressionPtr value = make(ExpressionKind::constant, token().line);
  const std::string text = token().text;
  switch (token().kind) {
    case TokenKind::name:
      if (text == "true" || text == "True") value->constant = true;
      else if (text == "false" || text == "False") value->constant = false;
      else if (text != "none" && text != "None") {
        if (is_in_macro_ && (text == "varargs" || text == "kwargs" || text == "caller"))
          fail("'{}' of a macro is not supported", text);
        value->kind = ExpressionKind::name;
        value->name = text;
      }
      take();
      return value;
    case TokenKind::text: {
      std::string all;
      while (token().kind == TokenKind::text) all += take().text;
      value->constant = Value::of_text(all);
      return value;
    }
    case TokenKind::whole: {
      int64_t whole = 0;
      if (std::from_chars(text.data(), text.data() + text.size(), whole).ec != std::errc())
        fail("the integer {} does not fit 64 bits", text);
      value->constant = whole;
      take();
      return value;
    }
    case TokenKind::number: {
      double number = 0;
      if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc())
        fail("the number {} does not fit a double", text);
      value->constant = number;
      take();
      return value;
    }
    default:
      return parse_bracket();
  }
}

ExpressionPtr Parser::parse_bracket() {
  const int line = token().line;
  if (take_symbol("(")) {
    if (take_symbol(")")) return make(ExpressionKind::tuple, line);
    ExpressionPtr inner = parse_tuple();
    expect_symbol(")");
    return inner;
  }
  if (take_symbol("[")) {
    ExpressionPtr list = make(ExpressionKind::list, line);
    while (!token().is_symbol("]")) {
      add_part(*list, parse_expression());
      if (!take_symbol(",")) break;
    }
    expect_symbol("]");
    return list;
  }
  if (!take_symbol("{")) fail("expected a value instead of {}", token().shown());
  ExpressionPtr dict = make(ExpressionKind::dict, line);
  while (!token().is_symbol("}")) {
    add_part(*dict, parse_expression());
    expect_symbol(":");
    add_part(*dict, parse_expression());
    if (!take_symbol(",")) break;
  }
  expect_symbol("}");
  return dict;
}

}  // namespace tutti::jinja
