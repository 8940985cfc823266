// What stands behind a value: attributes, subscripts, calls, filters and tests.
#include <charconv>

#include "tutti/io/chat_template/parser.h"

namespace tutti::jinja {

ExpressionPtr Parser::parse_postfix(ExpressionPtr operand) {
  while (true) {
    if (token().is_symbol(".") || token().is_symbol("[")) {
      operand = parse_subscript(std::move(operand));
    } else if (token().is_symbol("(")) {
      ExpressionPtr call = make(ExpressionKind::call, token().line);
      add_part(*call, std::move(operand));
      parse_arguments(*call);
      operand = std::move(call);
    } else {
      return operand;
    }
  }
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr operand) {
  const int line = token().line;
  if (take_symbol(".")) {
    ExpressionPtr whole = make(ExpressionKind::attribute, line);
    if (token().kind == TokenKind::whole) {
      whole->kind = ExpressionKind::item;
      add_part(*whole, std::move(operand));
      add_part(*whole, parse_primary());
      return whole;
    }
    whole->name = expect_name("the name of an attribute");
    add_part(*whole, std::move(operand));
    return whole;
  }
  expect_symbol("[");
  ExpressionPtr whole = make(ExpressionKind::item, line);
  add_part(*whole, std::move(operand));
  if (!token().is_symbol(":")) add_part(*whole, parse_expression());
  if (token().is_symbol(":")) {
    whole->kind = ExpressionKind::slice;
    if (whole->parts.size() == 1) add_part(*whole, nullptr);
    while (take_symbol(":")) {
      if (whole->parts.size() == 4) fail("a slice has at most two ':'");
      const bool is_left_out = token().is_symbol(":") || token().is_symbol("]");
      add_part(*whole, is_left_out ? nullptr : parse_expression());
    }
    if (whole->parts.size() == 3) add_part(*whole, nullptr);
  }
  if (token().is_symbol(",")) fail("a subscript with several values is not supported");
  expect_symbol("]");
  return whole;
}

void Parser::parse_arguments(Expression& call) {
  const Level level(*this);
  expect_symbol("(");
  while (!token().is_symbol(")")) {
    if (token().is_symbol("*") || token().is_symbol("**"))
      fail("arguments that a list or dict holds ({}) are not supported", token().text);
    if (token().kind == TokenKind::name && token_behind().is_symbol("=")) {
      call.keywords.push_back(take().text);
      take();
    } else if (!call.keywords.empty()) {
      fail("an argument without a name stands behind one with a name");
    }
    add_part(call, parse_expression());
    if (call.parts.size() > kMostArguments) fail("a call has more than {} arguments", kMostArguments);
    if (!take_symbol(",")) break;
  }
  expect_symbol(")");
}

ExpressionPtr Parser::parse_filters(ExpressionPtr operand) {
  while (true) {
    if (token().is_symbol("|")) {
      operand = parse_filter(std::move(operand));
    } else if (token().is_name("is")) {
      operand = parse_test(std::move(operand));
    } else if (token().is_symbol("(")) {
      operand = parse_postfix(std::move(operand));
    } else {
      return operand;
    }
  }
}

// Behind '|' or {% filter.
ExpressionPtr Parser::parse_filter(ExpressionPtr operand) {
  take_symbol("|");
  const int line = token().line;
  ExpressionPtr whole = make(ExpressionKind::filter, line);
  whole->name = expect_name("the name of a filter");
  whole->builtin = find_filter(whole->name);
  if (whole->builtin == nullptr) fail("the filter '{}' is not supported", whole->name);
  add_part(*whole, std::move(operand));
  if (token().is_symbol("(")) parse_arguments(*whole);
  return whole;
}

ExpressionPtr Parser::parse_test(ExpressionPtr operand) {
  const int line = take().line;
  const bool is_negated = take_name("not");
  ExpressionPtr whole = make(ExpressionKind::test, line);
  whole->name = expect_name("the name of a test");
  whole->builtin = find_value_test(whole->name);
  if (whole->builtin == nullptr) fail("the test '{}' is not supported", whole->name);
  add_part(*whole, std::move(operand));
  const Token& next = token();
  if (next.is_symbol("(")) {
    parse_arguments(*whole);
  } else if (next.kind == TokenKind::text || next.kind == TokenKind::whole || next.kind == TokenKind::number ||
             next.is_symbol("[") || next.is_symbol("{") ||
             (next.kind == TokenKind::name && !next.is_name("else") && !next.is_name("or") && !next.is_name("and"))) {
    if (next.is_name("is")) fail("tests cannot be chained with 'is'");
    add_part(*whole, parse_postfix(parse_primary()));
  }
  if (!is_negated) return whole;
  ExpressionPtr negation = make(ExpressionKind::negation, line);
  add_part(*negation, std::move(whole));
  return negation;
}

}  // namespace tutti::jinja
