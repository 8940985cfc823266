// ShardingRule: which placements of inputs and outputs an op can compute with locally, said as text.
//
// The text is "inputs -> outputs | factor classes | partial rows | exact", e.g. "A[mk] B[kn] -> C[mn] | sum{k} | bilin".
// docs/sharding_rules.md explains it; a rule belongs to one call, so it may depend on sizes and options.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/core/placement.h"
#include "tutti/core/shape.h"

namespace tutti {

// One tensor of a rule.
struct RuleOperand {
  std::string name;
  bool opaque = false;  // '#': never Partial
  bool addend = false;  // '+': takes the placement of the output, Partial included
  // One string of factors per dim, major first; "1" is a dim of size 1.
  std::vector<std::string> dims;
};

// What happens to a factor that an output does not have.
struct FactorClass {
  enum class Kind : uint8_t { reduce, mask, even };
  char factor;
  Kind kind;
  PartialOp op = PartialOp::sum;  // of a reduce
};

// One way to place the tensors of a call along one mesh axis so that every rank computes its part alone.
struct ShardingRow {
  std::string name;  // "replicate", "shard m", "lin sum"
  std::vector<Placement> inputs, outputs;
  // The combined outputs have the bits of the undivided call (numerics contract, N9).
  bool exact = false;
  // The sharded factor must divide evenly over the ranks; 0: any cut will do.
  char even_factor = 0;
  // The sharded factor is a range of index values: a rank replaces indices outside its range by any inside, and sets
  // the output elements that come from them to -0.0. 0: no.
  char masked_factor = 0;
};

class ShardingRule {
 public:
  // UsageError with the position in the text.
  static ShardingRule parse(std::string_view text);

  const std::vector<RuleOperand>& inputs() const { return inputs_; }
  const std::vector<RuleOperand>& outputs() const { return outputs_; }
  const std::vector<FactorClass>& classes() const { return classes_; }

  // The size of each factor that has one, by letter. UsageError when tensors disagree with the rule or each other.
  // Sizes as in the call, one entry per operand.
  std::vector<int64_t> factor_sizes(std::span<const Extents> inputs, std::span<const Extents> outputs) const;

  // Every legal row, the replicated one first, then factors in order of appearance, then partial rows.
  std::vector<ShardingRow> rows(std::span<const Extents> inputs, std::span<const Extents> outputs) const;

 private:
  class Parser;
  void check() const;
  ShardingRow factor_row(char factor, const std::vector<int64_t>& sizes) const;
  void add_partial_rows(std::string_view word, std::vector<ShardingRow>& rows) const;
  bool is_listed_exact(std::string_view word) const;

  std::string text_;
  std::vector<RuleOperand> inputs_, outputs_;
  std::vector<FactorClass> classes_;
  std::vector<std::string> partial_words_;
  std::vector<std::string> exact_;  // words and "sum{k}" that are bit-equal though their kind is not
};

// Index of a factor letter in the result of factor_sizes; -1 marks a factor without a size.
constexpr size_t factor_index(char letter) {
  return static_cast<size_t>(letter <= 'Z' ? letter - 'A' : letter - 'a' + 26);
}

}  // namespace tutti
