// The parser of sharding rules. Private to core.
#pragma once

#include "tutti/core/sharding_rule.h"

namespace tutti {

class ShardingRule::Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}
  void read(ShardingRule& rule);

 private:
  [[noreturn]] void fail(const std::string& expected) const;
  bool at_end() const { return at_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  void skip_spaces();
  bool take(std::string_view token);
  void expect(char c);
  std::string word();
  RuleOperand operand();
  std::string dim();
  int64_t leaf_in(std::string_view name) const;  // of "tree:LEAF"
  void factor_class(ShardingRule& rule);

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace tutti
