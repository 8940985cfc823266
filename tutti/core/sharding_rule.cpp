#include "tutti/core/sharding_rule.h"

#include <algorithm>
#include <cctype>

#include "tutti/core/error.h"
#include "tutti/core/sharding_rule_parser.h"

namespace tutti {
namespace {

constexpr size_t kLetters = 52;

bool is_shardable(char letter) { return letter >= 'a' && letter <= 'z'; }

// The dim of `operand` that holds `factor`, or -1.
int dim_with(const RuleOperand& operand, char factor) {
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    if (operand.dims[d].find(factor) != std::string::npos) return static_cast<int>(d);
  }
  return -1;
}

std::string spell(const RuleOperand& operand) {
  std::string text = operand.name + "[";
  for (const std::string& dim : operand.dims) text += dim.size() > 1 ? "(" + dim + ")" : dim;
  return text + "]";
}

void match_sizes(const RuleOperand& operand, const Extents& extents, const std::string& rule,
                 std::vector<int64_t>& sizes) {
  TUTTI_CHECK(operand.dims.size() == extents.size(), "sharding rule '{}': {} has {} dims, the tensor is {}", rule,
              spell(operand), operand.dims.size(), extents);
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    const std::string& dim = operand.dims[d];
    TUTTI_CHECK(dim != "1" || extents[d] == 1, "sharding rule '{}': dim {} of {} must have size 1, the tensor is {}",
                rule, d, spell(operand), extents);
    if (dim == "1" || dim.size() > 1) continue;
    int64_t& size = sizes[factor_index(dim[0])];
    TUTTI_CHECK(size < 0 || size == extents[d] || !is_shardable(dim[0]),
                "sharding rule '{}': factor {} has size {} elsewhere and {} in {}, whose tensor is {}", rule, dim, size,
                extents[d], spell(operand), extents);
    size = extents[d];
  }
}

// A merged dim in which one factor is unknown tells its size.
bool solve_merged(const RuleOperand& operand, const Extents& extents, std::vector<int64_t>& sizes) {
  bool found = false;
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    if (operand.dims[d].size() < 2) continue;
    int64_t known = 1;
    char unknown = 0;
    int missing = 0;
    for (const char f : operand.dims[d]) {
      const int64_t size = sizes[factor_index(f)];
      if (size < 0) unknown = f, ++missing;
      else known *= size;
    }
    if (missing != 1 || known == 0) continue;
    sizes[factor_index(unknown)] = extents[d] / known;
    found = true;
  }
  return found;
}

void check_merged(const RuleOperand& operand, const Extents& extents, const std::string& rule,
                  const std::vector<int64_t>& sizes) {
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    if (operand.dims[d].size() < 2) continue;
    int64_t product = 1;
    for (const char f : operand.dims[d]) product *= sizes[factor_index(f)];
    TUTTI_CHECK(product == extents[d],
                "sharding rule '{}': the factors of dim {} of {} have the product {}, the tensor is {}", rule, d,
                spell(operand), product, extents);
  }
}

// The placement of a tensor when `factor` is sharded.
Placement placement_for(const RuleOperand& operand, char factor, const std::vector<int64_t>& sizes) {
  const int dim = dim_with(operand, factor);
  if (dim < 0) return Placement::replicate();
  int64_t pieces = 1;
  for (const char f : operand.dims[static_cast<size_t>(dim)]) {
    if (f == factor) break;
    pieces *= sizes[factor_index(f)];
  }
  return Placement::shard(dim, pieces);
}

}  // namespace

ShardingRule ShardingRule::parse(std::string_view text) {
  ShardingRule rule;
  Parser(text).read(rule);
  rule.check();
  return rule;
}

// A factor stands once in a tensor; one that an output lacks has a class that says what becomes of it.
void ShardingRule::check() const {
  const auto check_once = [&](const RuleOperand& operand) {
    std::string seen;
    for (const std::string& dim : operand.dims) {
      for (const char f : dim) {
        TUTTI_CHECK(!is_shardable(f) || seen.find(f) == std::string::npos,
                    "sharding rule '{}': factor {} stands twice in {}; write it upper-case", text_, f, spell(operand));
        seen += f;
      }
    }
  };
  for (const RuleOperand& operand : inputs_) check_once(operand);
  for (const RuleOperand& operand : outputs_) check_once(operand);
  const auto has_class = [&](char f) {
    return std::any_of(classes_.begin(), classes_.end(), [f](const FactorClass& c) {
      return (c.factor == f || c.with.find(f) != std::string::npos) && c.kind != FactorClass::Kind::even;
    });
  };
  for (const RuleOperand& operand : inputs_) {
    for (const std::string& dim : operand.dims) {
      for (const char f : dim) {
        if (!is_shardable(f) || has_class(f)) continue;
        for (const RuleOperand& output : outputs_) {
          TUTTI_CHECK(
              dim_with(output, f) >= 0,
              "sharding rule '{}': factor {} is not in {} and has no class; give it one (sum{{{}}}) or write it "
              "upper-case",
              text_, f, spell(output), f);
        }
      }
    }
  }
  for (const FactorClass& c : classes_) {
    for (const char f : c.factor + c.with) {
      const bool used = std::any_of(inputs_.begin(), inputs_.end(),
                                    [&](const RuleOperand& operand) { return dim_with(operand, f) >= 0; });
      TUTTI_CHECK(used, "sharding rule '{}': factor {} has a class but is in no input", text_, f);
    }
  }
}

std::vector<int64_t> ShardingRule::factor_sizes(std::span<const Extents> inputs,
                                                std::span<const Extents> outputs) const {
  TUTTI_CHECK(inputs.size() == inputs_.size() && outputs.size() == outputs_.size(),
              "sharding rule '{}': it has {} inputs and {} outputs, the call has {} and {}", text_, inputs_.size(),
              outputs_.size(), inputs.size(), outputs.size());
  std::vector<int64_t> sizes(kLetters, -1);
  const auto each = [&](auto visit) {
    for (size_t i = 0; i < inputs.size(); ++i) visit(inputs_[i], inputs[i]);
    for (size_t k = 0; k < outputs.size(); ++k) visit(outputs_[k], outputs[k]);
  };
  each([&](const RuleOperand& operand, const Extents& extents) { match_sizes(operand, extents, text_, sizes); });
  for (bool again = true; again;) {
    again = false;
    each([&](const RuleOperand& operand, const Extents& extents) { again |= solve_merged(operand, extents, sizes); });
  }
  each([&](const RuleOperand& operand, const Extents& extents) { check_merged(operand, extents, text_, sizes); });
  return sizes;
}

ShardingRow ShardingRule::factor_row(char factor, const std::vector<int64_t>& sizes) const {
  ShardingRow row{.name = fmt::format("shard {}", factor), .inputs = {}, .outputs = {}, .exact = true};
  Placement rest = Placement::replicate();
  std::string together(1, factor);
  for (const FactorClass& c : classes_) {
    if (c.factor != factor) continue;
    together += c.with;
    if (c.kind == FactorClass::Kind::even) row.even_factor = factor;
    if (c.kind == FactorClass::Kind::mask) {
      row.masked_factor = factor;
      rest = Placement::partial(PartialOp::sum);  // one term is the value, the others are -0.0: exact
    }
    if (c.kind == FactorClass::Kind::reduce) {
      rest = Placement::partial(c.op);
      const bool selects = c.op == PartialOp::max || c.op == PartialOp::min;
      row.exact = selects || is_listed_exact(fmt::format("{}{{{}}}", name_of(c.op), factor));
      if (c.leaf > 0) row.tree_factor = factor, row.tree_with = c.with, row.tree_leaf = c.leaf;
    }
  }
  const auto placement_of = [&](const RuleOperand& operand) {
    Placement p = Placement::replicate();
    for (const char f : together) {
      if (!p.is_shard()) p = placement_for(operand, f, sizes);
    }
    return p;
  };
  bool in_every_output = true;
  for (const RuleOperand& output : outputs_) {
    const Placement p = placement_of(output);
    row.outputs.push_back(p.is_shard() ? p : rest);
    in_every_output = in_every_output && p.is_shard();
  }
  if (in_every_output) row.exact = true, row.tree_factor = 0;
  for (const RuleOperand& input : inputs_) {
    const Placement p = placement_of(input);
    row.inputs.push_back(p.is_shard() || !input.addend ? p : row.outputs[0]);
  }
  return row;
}

bool ShardingRule::is_listed_exact(std::string_view word) const {
  return std::find(exact_.begin(), exact_.end(), word) != exact_.end();
}

std::vector<ShardingRow> ShardingRule::rows(std::span<const Extents> inputs, std::span<const Extents> outputs) const {
  const std::vector<int64_t> sizes = factor_sizes(inputs, outputs);
  std::vector<ShardingRow> result;
  result.push_back({.name = "replicate",
                    .inputs = std::vector<Placement>(inputs_.size()),
                    .outputs = std::vector<Placement>(outputs_.size()),
                    .exact = true});
  std::string seen;
  for (const FactorClass& c : classes_) seen += c.with;  // in the rows of the factors that they are cut with
  const auto add_factors = [&](const RuleOperand& operand) {
    for (const std::string& dim : operand.dims) {
      for (const char f : dim) {
        if (!is_shardable(f) || seen.find(f) != std::string::npos) continue;
        seen += f;
        result.push_back(factor_row(f, sizes));
      }
    }
  };
  for (const RuleOperand& operand : inputs_) add_factors(operand);
  for (const RuleOperand& operand : outputs_) add_factors(operand);
  for (const std::string& word : partial_words_) add_partial_rows(word, result);
  return result;
}

}  // namespace tutti
