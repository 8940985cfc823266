#include "tutti/core/sharding_rule_parser.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "tutti/core/error.h"

namespace tutti {
namespace {

constexpr std::array<std::string_view, 12> kPartialWords = {"lin",    "id",  "idem", "up",   "dn",    "bilin",
                                                            "affine", "up2", "+max", "+min", "+prod", "zap"};

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }

}  // namespace

void ShardingRule::Parser::fail(const std::string& expected) const {
  throw UsageError(fmt::format("sharding rule: expected {} at position {} of '{}'", expected, at_, text_));
}

void ShardingRule::Parser::skip_spaces() {
  while (peek() == ' ') ++at_;
}

bool ShardingRule::Parser::take(std::string_view token) {
  skip_spaces();
  if (!text_.substr(at_).starts_with(token)) return false;
  at_ += token.size();
  return true;
}

void ShardingRule::Parser::expect(char c) {
  skip_spaces();
  if (peek() != c) fail(fmt::format("'{}'", c));
  ++at_;
}

std::string ShardingRule::Parser::word() {
  skip_spaces();
  const size_t start = at_;
  while (!at_end() && peek() != ' ' && peek() != '|' && peek() != '{') ++at_;
  return std::string(text_.substr(start, at_ - start));
}

std::string ShardingRule::Parser::dim() {
  if (peek() == '1') return ++at_, "1";
  if (is_letter(peek())) return std::string(1, text_[at_++]);
  if (peek() != '(') fail("a factor letter, '1', '(' or ']'");
  ++at_;
  std::string factors;
  while (is_letter(peek())) factors += text_[at_++];
  if (factors.size() < 2) fail("two or more factor letters in '(...)'");
  if (peek() != ')') fail("')'");
  ++at_;
  return factors;
}

RuleOperand ShardingRule::Parser::operand() {
  RuleOperand result;
  skip_spaces();
  if (peek() == '#') result.opaque = true, ++at_;
  else if (peek() == '+') result.addend = true, ++at_;
  while (is_letter(peek()) || std::isdigit(static_cast<unsigned char>(peek())) || peek() == '_')
    result.name += text_[at_++];
  if (result.name.empty()) fail("the name of a tensor");
  if (peek() != '[') fail("'['");
  ++at_;
  while (peek() != ']') result.dims.push_back(dim());
  ++at_;
  return result;
}

int64_t ShardingRule::Parser::leaf_in(std::string_view name) const {
  int64_t leaf = 0;
  const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), leaf);
  if (error != std::errc{} || end != name.data() + name.size() || leaf < 1)
    fail("tree:LEAF{..} with a number of elements");
  return leaf;
}

// sum{ab}: one class per letter; sum{a+b}: one class of both.
void ShardingRule::Parser::factor_class(ShardingRule& rule) {
  const size_t start = at_;
  std::string name = word();
  FactorClass entry{.factor = 0, .kind = FactorClass::Kind::reduce};
  if (name == "even") entry.kind = FactorClass::Kind::even;
  else if (name == "mask") entry.kind = FactorClass::Kind::mask;
  else if (name == "sum") entry.op = PartialOp::sum;
  else if (name.starts_with("tree:")) entry.leaf = leaf_in(name);
  else if (name == "avg!") entry.op = PartialOp::avg;
  else if (name == "max") entry.op = PartialOp::max;
  else if (name == "min") entry.op = PartialOp::min;
  else if (name == "prod") entry.op = PartialOp::prod;
  else at_ = start, fail("sum{..}, tree:LEAF{..}, avg!{..}, max{..}, min{..}, prod{..}, even{..} or mask{..}");
  expect('{');
  const auto letter = [&] {
    if (!is_letter(peek())) fail("a factor letter");
    if (!std::islower(static_cast<unsigned char>(peek()))) fail("a lower-case factor");
    return text_[at_++];
  };
  if (!is_letter(peek())) fail("a factor letter");
  while (is_letter(peek())) {
    entry.factor = letter();
    entry.with.clear();
    while (peek() == '+') ++at_, entry.with += letter();
    rule.classes_.push_back(entry);
    // An average of parts is the average of the whole only when the parts are equally large.
    if (entry.op == PartialOp::avg) rule.classes_.push_back({entry.factor, FactorClass::Kind::even});
  }
  expect('}');
}

void ShardingRule::Parser::read(ShardingRule& rule) {
  rule.text_ = text_;
  while (!take("->")) {
    if (at_end()) fail("a tensor or '->'");
    rule.inputs_.push_back(operand());
  }
  do {
    rule.outputs_.push_back(operand());
    skip_spaces();
  } while (!at_end() && peek() != '|');
  const auto section = [&](auto read_one) {
    if (!take("|")) return;
    skip_spaces();
    while (!at_end() && peek() != '|') {
      read_one();
      skip_spaces();
    }
  };
  section([&] { factor_class(rule); });
  section([&] {
    const size_t start = at_;
    std::string name = word();
    if (name.size() > 1 && name.back() == '+') name.pop_back();  // marks a row that other systems do not have
    if (std::find(kPartialWords.begin(), kPartialWords.end(), name) == kPartialWords.end()) {
      at_ = start;
      fail(fmt::format("one of {}", fmt::join(kPartialWords, ", ")));
    }
    rule.partial_words_.push_back(name);
  });
  section([&] {
    std::string name = word();
    if (peek() == '{') {
      const size_t start = at_;
      while (!at_end() && peek() != '}') ++at_;
      if (at_end()) fail("'}'");
      ++at_;
      for (const char letter : text_.substr(start + 1, at_ - start - 2))
        rule.exact_.push_back(fmt::format("{}{{{}}}", name, letter));
    } else {
      rule.exact_.push_back(name);
    }
  });
  if (!at_end()) fail("the end: there are four sections");
}

}  // namespace tutti
