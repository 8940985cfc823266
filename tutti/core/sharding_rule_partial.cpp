// The rows of a sharding rule in which inputs are Partial.
#include "tutti/core/error.h"
#include "tutti/core/sharding_rule.h"

namespace tutti {

void ShardingRule::add_partial_rows(std::string_view word, std::vector<ShardingRow>& rows) const {
  using enum PartialOp;
  // A row in which input i has `in(i)`; the addends and the outputs that may be Partial have `out`.
  const auto add = [&](std::string name, auto in, const Placement& out, bool exact) {
    ShardingRow row{.name = std::move(name), .inputs = {}, .outputs = {}, .exact = exact || is_listed_exact(word)};
    bool any = false;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Placement p = inputs_[i].opaque ? Placement::replicate() : inputs_[i].addend ? out : in(i);
      any = any || p.is_partial();
      row.inputs.push_back(p);
    }
    for (const RuleOperand& output : outputs_) row.outputs.push_back(output.opaque ? Placement::replicate() : out);
    if (any) rows.push_back(std::move(row));
  };
  const auto all = [&](PartialOp in, const Placement& out, bool exact) {
    add(fmt::format("{} {}", word, name_of(in)), [in](size_t) { return Placement::partial(in); }, out, exact);
  };
  if (word == "lin") {
    for (const PartialOp op : {sum, avg}) all(op, Placement::partial(op), false);
  } else if (word == "id") {
    for (const PartialOp op : {sum, avg, max, min}) all(op, Placement::partial(op), true);
  } else if (word == "idem") {
    for (const PartialOp op : {avg, max, min}) all(op, Placement::partial(op), op != avg);
  } else if (word == "up") {
    for (const PartialOp op : {max, min}) all(op, Placement::partial(op), false);
  } else if (word == "dn") {
    all(max, Placement::partial(min), false);
    all(min, Placement::partial(max), false);
  } else if (word == "zap") {
    for (const PartialOp op : {sum, avg, max, min, prod}) all(op, Placement::replicate(), true);
  } else if (word[0] == '+') {
    const PartialOp op = partial_op_from_name(word.substr(1));
    all(op, Placement::partial(op), op != prod);
  } else {
    // Words about the first two operands that are not addends.
    std::vector<size_t> pair;
    for (size_t i = 0; i < inputs_.size() && pair.size() < 2; ++i) {
      if (!inputs_[i].addend) pair.push_back(i);
    }
    const auto one = [&](size_t which, PartialOp op) {
      if (which >= pair.size() || inputs_[pair[which]].opaque) return;
      const size_t at = pair[which];
      add(
          fmt::format("{} {} of {}", word, name_of(op), inputs_[at].name),
          [at, op](size_t i) { return i == at ? Placement::partial(op) : Placement::replicate(); },
          Placement::partial(op), false);
    };
    if (word == "bilin") {
      for (const size_t which : {0, 1}) one(which, sum), one(which, avg);
    } else if (word == "affine") {
      all(sum, Placement::partial(sum), false);
      all(avg, Placement::partial(avg), false);
      one(0, avg), one(1, avg), one(0, max), one(0, min);
    } else if (word == "up2") {
      for (const size_t which : {0, 1}) one(which, max), one(which, min);
    }
  }
}

}  // namespace tutti
