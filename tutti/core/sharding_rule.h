// ShardingRule: the placements of inputs and outputs with which an op can be computed locally, written as text.
//
// The text is "inputs -> outputs | factor classes | partial rows | exact", e.g. "A[mk] B[kn] -> C[mn] | sum{k} |
// bilin". docs/sharding_rules.md explains it. A rule belongs to one call, so it may depend on sizes and options.
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
  bool opaque = false;  // '#': must not be Partial
  bool addend = false;  // '+': has the placement of the output, Partial included
  // One string of factors per dim, major first; "1" is a dim of size 1.
  std::vector<std::string> dims;
};

// The effect of sharding a factor that an output lacks.
struct FactorClass {
  enum class Kind : uint8_t { reduce, mask, even };
  char factor;
  Kind kind;
  PartialOp op = PartialOp::sum;  // for Kind::reduce
  std::string with = {};  // factors that are cut together with it, of sizes of their own: one row shards them all
  int64_t leaf = 0;  // of a sum by halving, whose cuts are exact on the borders of its tree: the elements of a leaf; 0:
                     // no such sum
};

// One way to place the tensors of a call along one mesh axis such that every rank computes its part without
// communication.
struct ShardingRow {
  std::string name;  // "replicate", "shard m", "lin sum"
  std::vector<Placement> inputs, outputs;
  // Whether the combined outputs have the bits of the undivided call (numerics contract, N9).
  bool exact = false;
  // A factor that is summed over by halving, with leaves of tree_leaf elements: the row is exact where its cuts are
  // borders of that tree (tree_cut.h) and the partial sums stay f32 until they are combined by halving. 0: none.
  char tree_factor = 0;
  std::string tree_with = {};  // factors that are cut together with it
  int64_t tree_leaf = 0;
  // A factor that must divide evenly over the ranks; 0: none.
  char even_factor = 0;
  // A sharded factor that is a range of index values: a rank replaces indices outside its range by any index inside it
  // and sets the output elements that come from them to -0.0. 0: none.
  char masked_factor = 0;
};

class ShardingRule {
 public:
  // UsageError, naming the position in the text, when the text is not a rule.
  static ShardingRule parse(std::string_view text);

  const std::vector<RuleOperand>& inputs() const { return inputs_; }
  const std::vector<RuleOperand>& outputs() const { return outputs_; }
  const std::vector<FactorClass>& classes() const { return classes_; }

  // The size of each factor that has one, at factor_index(letter). `inputs` and `outputs` hold the sizes of each
  // operand of the call. UsageError when they contradict the rule or each other.
  std::vector<int64_t> factor_sizes(std::span<const Extents> inputs, std::span<const Extents> outputs) const;

  // All legal rows: first the replicated one, then one per factor in order of appearance, then partial rows.
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
  std::vector<std::string>
      exact_;  // partial words and factors ("sum{k}") whose rows are exact although their kind is not
};

// Index of a factor letter in the result of factor_sizes; -1 marks a factor without a size.
constexpr size_t factor_index(char letter) {
  return static_cast<size_t>(letter <= 'Z' ? letter - 'A' : letter - 'a' + 26);
}

}  // namespace tutti
