#include "tutti/dist/rule_report.h"

#include <algorithm>

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/core/sharding_rule.h"
#include "tutti/dist/op_plan.h"

namespace tutti::dist {
namespace {

struct Counts {
  int exact = 0, tree = 0, close = 0;
};

std::string why_only_replicated(const OpDef& op, const ShardingRule& rule) {
  const auto all_dims = [&](const auto& holds) {
    for (const RuleOperand& operand : rule.inputs()) {
      for (const std::string& dim : operand.dims) {
        if (!holds(dim)) return false;
      }
    }
    return true;
  };
  if (rule.inputs().empty()) return "it has no inputs";
  if (op.ordered) return "it communicates or has effects, which every rank must have alike";
  if (all_dims([](const std::string& dim) { return dim == "1"; }))
    return "its first sample has no dim of more than one element";
  return "every dim takes part in one result, or its sizes depend on elements";
}

}  // namespace

std::string rule_report() {
  std::string table = "| op | rule of its first sample | exact | tree | close |\n|---|---|---|---|---|\n", only;
  int ops = 0;
  Counts total;
  for (const OpDef* op : op_table()) {
    if (op->sharding == nullptr || op->samples == nullptr || op->ordered) continue;
    const std::vector<Sample> samples = op->samples();
    if (samples.empty()) continue;
    const Sample& sample = samples[0];
    const OpCall call{*op, sample.inputs, sample.attrs};
    OutputMetas metas;
    op->infer(call, metas);
    std::vector<Extents> inputs, outputs;
    for (const Tensor& t : sample.inputs) inputs.push_back(t.extents());
    for (int k = 0; k < metas.count; ++k) outputs.push_back(concrete(metas.meta[k].sizes));
    std::string text = op->sharding(call);
    const ShardingRule rule = ShardingRule::parse(text);
    Counts counts;
    const std::vector<ShardingRow> rows = rule.rows(inputs, outputs);
    for (const ShardingRow& row : rows)
      ++(row.exact ? counts.exact : row.tree_factor != 0 ? counts.tree : counts.close);
    ++ops;
    total.exact += counts.exact, total.tree += counts.tree, total.close += counts.close;
    if (rows.size() == 1) only += fmt::format("| {} | {} |\n", op->name, why_only_replicated(*op, rule));
    for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
    table += fmt::format("| {} | `{}` | {} | {} | {} |\n", op->name, text, counts.exact, counts.tree, counts.close);
  }
  return fmt::format(
      "# Sharding rules of all ops\n\n"
      "The rule of each op for its first sample, in the notation of [sharding_rules.md](sharding_rules.md), and its "
      "rows: exact ones keep the bits of one rank, tree rows do\n"
      "where they are cut at borders of the reduction tree, close ones are for fast mode. {} ops: {} exact rows, {} "
      "tree rows, {} close rows. `tutti explain rules` prints this page.\n\n"
      "{}\n## Ops that have only the replicated row\n\n| op | reason |\n|---|---|\n{}",
      ops, total.exact, total.tree, total.close, table, only);
}

}  // namespace tutti::dist
