#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/io/chat_template/parser.h"
#include "tutti/io/utf8.h"

namespace tutti::jinja {
namespace {

// Assigns for the length of a scope.
template <class T>
class Kept {
 public:
  Kept(T& variable, T value) : variable_(variable), old_(variable) { variable = value; }
  ~Kept() { variable_ = old_; }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

 private:
  T& variable_;
  T old_;
};

bool is_one_of(const Token& token, std::initializer_list<std::string_view> names) {
  return token.kind == TokenKind::name && std::find(names.begin(), names.end(), token.text) != names.end();
}

}  // namespace

Parser::Parser(std::string_view source, std::string_view name, const ChatTemplateLimits& limits)
    : meter_(std::string(name), limits), limits_(limits), name_(name) {
  TUTTI_CHECK(source.size() <= limits.source_nbytes, "{}: the template has {} bytes, more than the {} that are allowed",
              name, source.size(), limits.source_nbytes);
  const size_t valid = io::utf8_valid_prefix_nbytes(source);
  TUTTI_CHECK(valid == source.size(), "{}: byte {} of the template is not UTF-8", name, valid + 1);
  tokens_ = tokenize(source, name);
}

Template Parser::run() {
  Block body = parse_block({});
  if (token().kind != TokenKind::end) fail("unexpected {}", token().shown());
  return {.name = name_, .limits = limits_, .body = std::move(body), .has_generation = has_generation_};
}

void Parser::close_tag() {
  if (token().kind != TokenKind::block_end) fail("expected '%}}' instead of {}", token().shown());
  take();
}

// Up to a tag whose name is one of `ends`, which is the next token; with no ends, up to the end of the template.
Block Parser::parse_block(std::initializer_list<std::string_view> ends) {
  const Level level(*this);
  Block block;
  while (true) {
    const Token& next = token();
    if (next.kind == TokenKind::data) {
      block.push_back({.kind = StatementKind::data, .line = next.line, .text = next.text});
      take();
    } else if (next.kind == TokenKind::variable_begin) {
      block.push_back(parse_output());
    } else if (next.kind == TokenKind::block_begin) {
      take();
      if (is_one_of(token(), ends)) return block;
      block.push_back(parse_statement());
      close_tag();
    } else {
      if (ends.size() != 0) fail("the template ends where a tag '{}' is expected", *ends.begin());
      return block;
    }
  }
}

Statement Parser::parse_statement() {
  const Token& tag = token();
  if (tag.kind != TokenKind::name) fail("expected the name of a tag instead of {}", tag.shown());
  if (tag.text == "set") return parse_set();
  if (tag.text == "if") return parse_if();
  if (tag.text == "for") return parse_for();
  if (tag.text == "macro") return parse_macro();
  if (tag.text == "with") return parse_with();
  if (tag.text == "filter") return parse_filter_block();
  if (tag.text == "generation") return parse_generation();
  if (tag.text == "break" || tag.text == "continue") {
    if (loops_ == 0) fail("'{}' stands outside of a loop", tag.text);
    const bool is_break = tag.text == "break";
    return {.kind = is_break ? StatementKind::break_ : StatementKind::continue_, .line = take().line};
  }
  if (tag.text.starts_with("end") || tag.text == "else" || tag.text == "elif")
    fail("the tag '{}' closes nothing that is open", tag.text);
  fail("the tag '{}' is not supported", tag.text);
}

Statement Parser::parse_output() {
  Statement output{.kind = StatementKind::output, .line = take().line};
  output.expressions.push_back(parse_tuple());
  if (token().kind != TokenKind::variable_end) fail("expected '}}}}' instead of {}", token().shown());
  take();
  return output;
}

std::vector<Target> Parser::parse_targets(bool takes_attributes, bool& is_tuple) {
  std::vector<Target> targets;
  const bool has_bracket = take_symbol("(");
  is_tuple = false;
  do {
    if (!targets.empty() && token().kind != TokenKind::name) break;
    Target target{.name = expect_name("the name of a variable")};
    static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(kConstants), std::end(kConstants), target.name) != std::end(kConstants))
      fail("'{}' cannot be assigned to", target.name);
    if (takes_attributes && take_symbol(".")) target.attribute = expect_name("the name of an attribute");
    targets.push_back(std::move(target));
    is_tuple = is_tuple || token().is_symbol(",");
  } while (take_symbol(","));
  if (has_bracket) expect_symbol(")");
  return targets;
}

// The body of something whose output is kept, which break and continue do not leave.
Block Parser::parse_capture(std::string_view end) {
  take_symbol(":");
  close_tag();
  const Kept loops(loops_, 0);
  const Kept nested(is_nested_, true);
  Block body = parse_block({end});
  take();
  return body;
}

Statement Parser::parse_set() {
  Statement set{.kind = StatementKind::set, .line = take().line};
  set.targets = parse_targets(true, set.is_tuple);
  if (take_symbol("=")) {
    set.expressions.push_back(parse_tuple());
    return set;
  }
  set.kind = StatementKind::set_block;
  if (set.is_tuple) fail("a block is assigned to several variables");
  ExpressionPtr filter;
  while (token().is_symbol("|")) filter = parse_filter(std::move(filter));
  set.expressions.push_back(std::move(filter));
  set.body = parse_capture("endset");
  return set;
}

Statement Parser::parse_for() {
  Statement loop{.kind = StatementKind::for_, .line = take().line};
  loop.targets = parse_targets(false, loop.is_tuple);
  if (!take_name("in")) fail("expected 'in' instead of {}", token().shown());
  loop.expressions.push_back(parse_tuple(false));
  loop.expressions.push_back(take_name("if") ? parse_expression() : nullptr);
  if (token().is_name("recursive")) fail("a recursive loop is not supported");
  take_symbol(":");
  close_tag();
  {
    const Kept loops(loops_, loops_ + 1);
    const Kept nested(is_nested_, true);
    loop.body = parse_block({"endfor", "else"});
  }
  if (take().text == "endfor") return loop;
  take_symbol(":");
  close_tag();
  loop.branches.push_back({.condition = nullptr, .body = parse_block({"endfor"})});
  take();
  return loop;
}

Statement Parser::parse_if() {
  Statement choice{.kind = StatementKind::if_, .line = token().line};
  while (true) {
    const std::string tag = take().text;
    Branch branch{.condition = tag == "else" ? nullptr : parse_tuple(false), .body = {}};
    take_symbol(":");
    close_tag();
    if (tag == "else") branch.body = parse_block({"endif"});
    else branch.body = parse_block({"endif", "elif", "else"});
    choice.branches.push_back(std::move(branch));
    if (!token().is_name("endif")) continue;
    take();
    return choice;
  }
}

Statement Parser::parse_with() {
  Statement with{.kind = StatementKind::with, .line = take().line};
  while (token().kind == TokenKind::name) {
    with.targets.push_back({.name = expect_name("the name of a variable")});
    expect_symbol("=");
    with.expressions.push_back(parse_expression());
    if (!take_symbol(",")) break;
  }
  take_symbol(":");
  close_tag();
  const Kept nested(is_nested_, true);
  with.body = parse_block({"endwith"});
  take();
  return with;
}

Statement Parser::parse_macro() {
  Statement macro{.kind = StatementKind::macro, .line = take().line};
  macro.text = expect_name("the name of a macro");
  if (is_nested_) fail("the macro '{}' inside a loop, macro or captured block is not supported", macro.text);
  expect_symbol("(");
  while (!token().is_symbol(")")) {
    const std::string name = expect_name("the name of a parameter");
    if (name == "caller") fail("the parameter 'caller' of a macro is not supported");
    macro.targets.push_back({.name = name});
    if (macro.targets.size() > kMostArguments) fail("a macro has more than {} parameters", kMostArguments);
    if (take_symbol("=")) macro.expressions.push_back(parse_expression());
    else if (!macro.expressions.empty()) fail("the parameter '{}' has no default, but one before it has", name);
    if (!take_symbol(",")) break;
  }
  expect_symbol(")");
  const Kept inside(is_in_macro_, true);
  macro.body = parse_capture("endmacro");
  return macro;
}

Statement Parser::parse_filter_block() {
  Statement block{.kind = StatementKind::filter_block, .line = take().line};
  ExpressionPtr filter = parse_filter(nullptr);
  while (token().is_symbol("|")) filter = parse_filter(std::move(filter));
  block.expressions.push_back(std::move(filter));
  block.body = parse_capture("endfilter");
  return block;
}

Statement Parser::parse_generation() {
  Statement generation{.kind = StatementKind::generation, .line = take().line};
  has_generation_ = true;
  generation.body = parse_capture("endgeneration");
  return generation;
}

}  // namespace tutti::jinja
