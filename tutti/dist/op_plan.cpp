#include "tutti/dist/op_plan.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <map>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/core/tree_cut.h"
#include "tutti/dist/joined_steps.h"
#include "tutti/dist/moves.h"

namespace tutti::dist {
namespace {

// Combinations beyond this number are not looked at one by one: mesh dims then take their rows in turn.
constexpr size_t kMostCombinations = 20000;

int dim_with(const RuleOperand& operand, char factor) {
  for (size_t d = 0; d < operand.dims.size(); ++d) {
    if (operand.dims[d].find(factor) != std::string::npos) return static_cast<int>(d);
  }
  return -1;
}

char factor_of(const ShardingRow& row) { return row.name.starts_with("shard ") ? row.name[6] : '\0'; }

LocalBox box_of(const DTensorSpec& spec, std::span<const int64_t> coordinate) {
  LocalBox box{.sizes = spec.local_sizes(coordinate), .offsets = {}};
  for (int d = 0; d < box.sizes.ndim(); ++d) {
    const IndexSet held = spec.indices(d, coordinate);
    box.offsets.push_back(held.ranges().empty() ? spec.sizes()[static_cast<size_t>(d)] : held.ranges()[0].begin);
  }
  return box;
}

class Chooser {
 public:
  explicit Chooser(const LayoutQuery& query)
      : query_(query),
        axes_(static_cast<size_t>(query.inputs.at(0)->mesh_ndim())),
        shape_(query.inputs[0]->mesh_shape()) {
    for (const DTensorSpec* spec : query.inputs) input_sizes_.push_back(spec->sizes());
    for (const OutputMeta& meta : query.outputs) output_sizes_.push_back(concrete(meta.sizes));
    result_.rule = sharding_of(query.call);
    rule_ = ShardingRule::parse(result_.rule);
    result_.rows = rule_.rows(input_sizes_, output_sizes_);
    factor_sizes_ = rule_.factor_sizes(input_sizes_, output_sizes_);
    std::set<std::vector<int>> orders;
    for (const DTensorSpec* spec : query.inputs) orders.insert(spec->order());
    orders_.assign(orders.begin(), orders.end());
    for (const int8_t written : query.call.op.writes) {
      if (written >= 0) written_.push_back(static_cast<size_t>(written));
    }
  }

  Candidates run() {
    look();
    const auto has_terms = [this](size_t i) { return query_.inputs[i]->has_partial(); };
    if (result_.chosen < 0 && std::any_of(written_.begin(), written_.end(), has_terms)) {
      may_write_back_ = true;
      result_.all.clear();
      look();
    }
    keep_symbols();
    return std::move(result_);
  }

 private:
  void look() {
    size_t combinations = 1;
    for (size_t axis = 0; axis < axes_ && combinations <= kMostCombinations; ++axis)
      combinations *= result_.rows.size();
    if (combinations > kMostCombinations) look_in_turn();
    else look_at_all();
  }

  // A size that is a symbol spares a trace per size, which is worth up to twice the price: a reduction of all in the
  // place of one whose results are scattered, but no gather in the place of an exchange.
  void keep_symbols() {
    if (result_.chosen < 0 || symbols_cut(result_.all[static_cast<size_t>(result_.chosen)]) == 0) return;
    const double most = 2 * result_.all[static_cast<size_t>(result_.chosen)].cost;
    int kept = -1;
    for (size_t k = 0; k < result_.all.size(); ++k) {
      const Candidate& c = result_.all[k];
      if (!c.refusal.empty() || c.cost > most || symbols_cut(c) > 0) continue;
      if (kept < 0 || key(c) < key(result_.all[static_cast<size_t>(kept)])) kept = static_cast<int>(k);
    }
    if (kept >= 0) result_.chosen = kept;
  }

  void look_at_all() {
    std::vector<size_t> at(axes_, 0);
    std::vector<const ShardingRow*> rows(axes_);
    while (true) {
      for (size_t axis = 0; axis < axes_; ++axis) rows[axis] = &result_.rows[at[axis]];
      consider(rows);
      size_t axis = axes_;
      while (axis > 0 && ++at[axis - 1] == result_.rows.size()) at[--axis] = 0;
      if (axis == 0) break;
    }
  }

  // Starts from the rows that fit the inputs as they are, and from replication, and changes the row of one mesh dim at
  // a time as long as that is cheaper.
  void look_in_turn() {
    std::vector<const ShardingRow*> fitting;
    for (size_t axis = 0; axis < axes_; ++axis) fitting.push_back(fitting_row(axis));
    consider(std::vector<const ShardingRow*>(axes_, &result_.rows[0]));
    consider(fitting);
    for (int before = -2; before != result_.chosen;) {
      before = result_.chosen;
      for (size_t axis = 0; axis < axes_; ++axis) {
        for (const ShardingRow& row : result_.rows) {
          std::vector<const ShardingRow*> rows =
              result_.chosen < 0 ? fitting : result_.all[static_cast<size_t>(result_.chosen)].rows;
          rows[axis] = &row;
          consider(rows);
        }
      }
    }
  }

  const ShardingRow* fitting_row(size_t axis) const {
    const auto fits = [&](const ShardingRow& row) {
      for (size_t i = 0; i < query_.inputs.size(); ++i) {
        if (!(row.inputs[i] == query_.inputs[i]->placements()[axis])) return false;
      }
      return true;
    };
    const auto it = std::find_if(result_.rows.begin(), result_.rows.end(), fits);
    return it == result_.rows.end() ? &result_.rows[0] : &*it;
  }

  void consider(const std::vector<const ShardingRow*>& rows) {
    for (const std::vector<int>& order : orders_) consider(rows, order);
  }

  void consider(const std::vector<const ShardingRow*>& rows, const std::vector<int>& order) {
    Candidate c{.rows = rows, .inputs = {}, .outputs = {}};
    try {
      place(c, order);
    } catch (const UsageError& error) {
      c.refusal = error.what();
    }
    if (c.refusal.empty()) check(c);
    if (c.refusal.empty()) price(c);
    // The same rows in another order make no other candidate unless two axes shard one dim.
    const auto is_same = [&](const Candidate& other) {
      return other.rows == c.rows && other.inputs == c.inputs && other.outputs == c.outputs;
    };
    if (std::any_of(result_.all.begin(), result_.all.end(), is_same)) return;
    result_.all.push_back(std::move(c));
    const Candidate& added = result_.all.back();
    if (!added.refusal.empty()) return;
    if (result_.chosen < 0 || key(added) < key(result_.all[static_cast<size_t>(result_.chosen)]))
      result_.chosen = static_cast<int>(result_.all.size()) - 1;
  }

  // How many dims with symbolic sizes the candidate cuts.
  int symbols_cut(const Candidate& c) const {
    int count = 0;
    for (size_t i = 0; i < query_.symbols.size(); ++i) {
      const DTensorSpec& spec = i < c.inputs.size() ? *c.inputs[i] : *c.outputs[i - c.inputs.size()];
      for (int d = 0; d < spec.sizes().ndim(); ++d)
        count += (query_.symbols[i] >> d & 1) != 0 && !spec.axes_of(d).empty();
    }
    return count;
  }

  std::tuple<double, double, int, int, int, int, int64_t> key(const Candidate& c) const {
    const bool is_wanted =
        query_.wanted != nullptr && !c.outputs.empty() && c.outputs[0]->placements() == query_.wanted->placements();
    return {c.cost,
            c.bytes,
            c.collectives,
            c.moved,
            c.renamed,
            symbols_cut(c),
            query_.wanted == nullptr ? -c.shards : -static_cast<int64_t>(is_wanted)};
  }

  // The specs of all tensors. Factors that stand alone in their dims keep the pieces in which an input holds them;
  // those inside merged dims have the pieces that outer axes leave.
  void place(Candidate& c, const std::vector<int>& order) const {
    std::vector<Placements> inputs(query_.inputs.size(), Placements(axes_)),
        outputs(query_.outputs.size(), Placements(axes_));
    Cut cut = Cut::halving;
    for (const DTensorSpec* spec : query_.inputs) {
      if (spec->cut() == Cut::chunk) cut = Cut::chunk;
    }
    // What is written stays as it is cut.
    for (const size_t i : written_) {
      if (query_.inputs[i]->has_shard()) cut = query_.inputs[i]->cut();
    }
    for (size_t axis = 0; axis < axes_; ++axis) {
      const ShardingRow& row = *c.rows[axis];
      const int64_t pieces = pieces_held(row, axis);
      const auto fill = [&](std::vector<Placements>& to, const std::vector<Placement>& from,
                            const std::vector<RuleOperand>& operands) {
        for (size_t t = 0; t < to.size(); ++t) to[t][axis] = adjusted(c, from[t], operands[t], axis, pieces, order);
      };
      fill(inputs, row.inputs, rule_.inputs());
      fill(outputs, row.outputs, rule_.outputs());
    }
    const DTensorSpec& first = *query_.inputs[0];
    const auto spec = [&](Placements& placements, const Extents& sizes, DType dtype) {
      return &DTensorSpec::of({.mesh_id = first.mesh_id(),
                               .mesh_shape = shape_,
                               .placements = std::move(placements),
                               .order = order,
                               .sizes = sizes,
                               .dtype = dtype,
                               .cut = cut},
                              query_.call.op.name);
    };
    for (size_t i = 0; i < inputs.size(); ++i)
      c.inputs.push_back(spec(inputs[i], input_sizes_[i], query_.inputs[i]->dtype()));
    for (size_t k = 0; k < outputs.size(); ++k)
      c.outputs.push_back(spec(outputs[k], output_sizes_[k], query_.outputs[k].dtype));
    keep_names(c);
  }

  // An input whose parts are those that the rows want stays what it is, and so does what is written into it.
  void keep_names(Candidate& c) const {
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      if (c.inputs[i] == query_.inputs[i] || !has_parts_of(query_.inputs[i], c.inputs[i])) continue;
      c.inputs[i] = query_.inputs[i];
      ++c.renamed;
    }
    for (size_t k = 0; k < c.outputs.size() && k < kMaxOutputs; ++k) {
      const int written = query_.call.op.writes[k];
      if (written >= 0 && has_parts_of(query_.inputs[static_cast<size_t>(written)], c.outputs[k]))
        c.outputs[k] = query_.inputs[static_cast<size_t>(written)];
    }
  }
  bool has_parts_of(const DTensorSpec* a, const DTensorSpec* b) const {
    const auto [it, is_new] = same_parts_.emplace(std::pair{a, b}, false);
    if (is_new) it->second = a->has_parts_of(*b);
    return it->second;
  }

  // The pieces in which an input holds the factor of a row along an axis, if it is a dim of its own everywhere. Trees
  // and ranges of index values need one range on each rank.
  int64_t pieces_held(const ShardingRow& row, size_t axis) const {
    const char factor = factor_of(row);
    if (factor == '\0' || row.tree_factor != 0 || row.masked_factor != 0) return 1;
    int64_t pieces = 1;
    bool is_written = false;
    const auto is_alone = [&](const RuleOperand& operand) {
      const int d = dim_with(operand, factor);
      return d < 0 || operand.dims[static_cast<size_t>(d)].size() == 1;
    };
    if (!std::all_of(rule_.inputs().begin(), rule_.inputs().end(), is_alone) ||
        !std::all_of(rule_.outputs().begin(), rule_.outputs().end(), is_alone))
      return 1;
    for (size_t i = 0; i < query_.inputs.size(); ++i) {
      const Placement& p = query_.inputs[i]->placements()[axis];
      if (!p.is_shard() || p.dim() != dim_with(rule_.inputs()[i], factor) || is_written) continue;
      is_written = std::find(written_.begin(), written_.end(), i) != written_.end();
      pieces = is_written ? p.pieces() : std::max(pieces, p.pieces());
    }
    return pieces;
  }

  Placement adjusted(const Candidate& c, const Placement& p, const RuleOperand& operand, size_t axis, int64_t pieces,
                     const std::vector<int>& order) const {
    if (!p.is_shard()) return p;
    const std::string& dim = operand.dims[static_cast<size_t>(p.dim())];
    if (dim.size() == 1) return Placement::shard(p.dim(), pieces);
    // Axes that cut before this one have divided the factors in front of this one.
    int64_t left = p.pieces();
    for (const int outer : order) {
      if (static_cast<size_t>(outer) == axis) break;
      const char other = factor_of(*c.rows[static_cast<size_t>(outer)]);
      const size_t at = other == '\0' ? std::string::npos : dim.find(other);
      if (at == std::string::npos || at >= dim.find(factor_of(*c.rows[axis]))) continue;
      const int64_t ranks = shape_[static_cast<size_t>(outer)];
      TUTTI_CHECK(left % ranks == 0, "factor {} of a merged dim does not divide over {} ranks", other, ranks);
      left /= ranks;
    }
    return Placement::shard(p.dim(), left);
  }

  // ---- whether a candidate may be taken ----

  void check(Candidate& c) const {
    c.refusal = why_not_exact(c);
    if (c.refusal.empty()) c.refusal = why_not_cut(c);
    if (c.refusal.empty()) c.refusal = why_not_in_place(c);
  }

  // The ranks over which a factor is cut.
  int64_t ranks_of(const Candidate& c, char factor) const {
    int64_t ranks = 1;
    for (size_t axis = 0; axis < axes_; ++axis) {
      if (factor_of(*c.rows[axis]) == factor) ranks *= shape_[axis];
    }
    return ranks;
  }
  // Whether the op makes the dim, as expand does.
  bool is_new(char factor) const {
    return std::all_of(rule_.inputs().begin(), rule_.inputs().end(),
                       [factor](const RuleOperand& operand) { return dim_with(operand, factor) < 0; });
  }
  int64_t size_of(char factor) const { return factor_sizes_[factor_index(factor)]; }

  std::string why_not_exact(Candidate& c) const {
    for (size_t axis = 0; axis < axes_; ++axis) {
      const ShardingRow& row = *c.rows[axis];
      if (row.exact || (!query_.strict && row.tree_factor == 0)) continue;
      if (row.tree_factor == 0)
        return fmt::format("row '{}' does not keep the bits of one rank; fast mode takes it", row.name);
      std::string why = why_not_tree(c, row);
      if (why.empty() && rounds_terms(c))
        why = "the op rounds its terms to the dtype of the result, and they must stay f32 until they are added";
      if (query_.strict && !why.empty()) return why;
      c.in_f32 = true;
    }
    return "";
  }

  // Whether the local call cannot return its terms in f32.
  bool rounds_terms(const Candidate& c) const {
    if (c.outputs[0]->dtype() == c.outputs[0]->local_dtype()) return false;
    Attrs attrs = query_.call.attrs;
    return !attrs.set_output_dtype(c.outputs[0]->local_dtype());
  }

  std::string why_not_tree(const Candidate& c, const ShardingRow& row) const {
    const int64_t ranks = ranks_of(c, row.tree_factor);
    for (const char factor : row.tree_factor + row.tree_with) {
      const int64_t size = size_of(factor), largest = largest_cut(size, row.tree_leaf);
      if (!std::has_single_bit(static_cast<uint64_t>(ranks)) || ranks > largest) {
        return fmt::format(
            "the sum over {} elements is a tree with leaves of {}: it can be cut over powers of two up to {}, not over "
            "{} ranks",
            size, row.tree_leaf, largest, ranks);
      }
      const bool is_chunked = std::any_of(c.inputs.begin(), c.inputs.end(),
                                          [](const DTensorSpec* spec) { return spec->cut() == Cut::chunk; });
      if (is_chunked && size % ranks != 0)
        return fmt::format("the sum over {} elements is a tree of halves, and torch.chunk cuts elsewhere", size);
    }
    for (const DTensorSpec* spec : c.inputs) {
      for (int d = 0; d < spec->sizes().ndim(); ++d) {
        std::vector<int> axes = spec->axes_of(d);
        std::erase_if(axes, [this](int axis) { return shape_[static_cast<size_t>(axis)] == 1; });
        if (!std::is_sorted(axes.begin(), axes.end()))
          return "the ranks of a tree are nested in ascending order of the mesh dims";
      }
    }
    return "";
  }

  std::string why_not_cut(const Candidate& c) const {
    for (size_t axis = 0; axis < axes_; ++axis) {
      const ShardingRow& row = *c.rows[axis];
      if (row.even_factor != 0 && size_of(row.even_factor) % ranks_of(c, row.even_factor) != 0) {
        return fmt::format("factor {} of {} elements does not divide over {} ranks", row.even_factor,
                           size_of(row.even_factor), ranks_of(c, row.even_factor));
      }
      const char factor = factor_of(row);
      const bool selects = std::any_of(row.outputs.begin(), row.outputs.end(), [](const Placement& p) {
        return p.is_partial() && (p.op() == PartialOp::max || p.op() == PartialOp::min);
      });
      if (factor != '\0' && is_new(factor) && ranks_of(c, factor) > size_of(factor))
        return fmt::format("factor {} of {} elements, which no input has, would leave some of {} ranks without any",
                           factor, size_of(factor), ranks_of(c, factor));
      if (factor != '\0' && selects && ranks_of(c, factor) > size_of(factor))
        return fmt::format("a rank would have none of the {} elements of factor {} to choose from", size_of(factor),
                           factor);
      if (factor != '\0' && selects && has_empty(c, factor))
        return fmt::format("a rank would have none of the {} elements of factor {} to choose from", size_of(factor),
                           factor);
    }
    // What is written stays as it is, however small, and the others follow it.
    for (size_t i = 0; i < c.inputs.size() && written_.empty(); ++i) {
      if (c.inputs[i] == query_.inputs[i]) continue;
      for (int d = 0; d < c.inputs[i]->sizes().ndim(); ++d) {
        int64_t ranks = 1;
        for (const int axis : c.inputs[i]->axes_of(d)) ranks *= shape_[static_cast<size_t>(axis)];
        if (ranks > 1 && ranks > c.inputs[i]->sizes()[static_cast<size_t>(d)])
          return fmt::format("dim {} of input {} has fewer elements than {} ranks", d, i, ranks);
      }
    }
    if (query_.call.op.local_attrs != nullptr) {
      for (const Placement& p : c.outputs[0]->placements()) {
        const bool is_merged = p.is_shard() && rule_.outputs()[0].dims[static_cast<size_t>(p.dim())].size() > 1;
        if (p.is_shard() && p.pieces() > 1 && !is_merged)
          return "the op needs one range of positions, and a strided part has several";
      }
      return why_no_attrs(*c.outputs[0]);
    }
    return "";
  }

  // Whether the op can be asked for the parts of the first and the last rank, which differ most.
  std::string why_no_attrs(const DTensorSpec& output) const {
    std::vector<int64_t> first(axes_, 0), last;
    for (const int64_t ranks : shape_) last.push_back(ranks - 1);
    try {
      for (const std::vector<int64_t>& at : {first, last}) query_.call.op.local_attrs(query_.call, box_of(output, at));
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  }

  // Any rank may be the one: of 7 elements over 2 x 3 ranks, the third has none and the last has one.
  bool has_empty(const Candidate& c, char factor) const {
    const std::vector<std::vector<int64_t>> all = coordinates_of(shape_);
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const int d = dim_with(rule_.inputs()[i], factor);
      if (d >= 0 && std::any_of(all.begin(), all.end(), [&](const std::vector<int64_t>& at) {
            return c.inputs[i]->indices(d, at).size() == 0;
          }))
        return true;
    }
    return false;
  }

  std::string why_not_in_place(Candidate& c) const {
    for (size_t k = 0; k < c.outputs.size() && k < kMaxOutputs; ++k) {
      const int written = query_.call.op.writes[k];
      if (written < 0) continue;
      const DTensorSpec* as_is = query_.inputs[static_cast<size_t>(written)];
      if (c.inputs[static_cast<size_t>(written)] == as_is && c.outputs[k] == as_is) continue;
      if (may_write_back_ && adds_terms(*as_is, *c.inputs[static_cast<size_t>(written)]) &&
          adds_terms(*as_is, *c.outputs[k]))
        c.writes_back = true;
      else
        return fmt::format("input {} is written in place, so its layout {} must stay", written,
                           to_string(as_is->placements()));
    }
    return "";
  }

  // Whether `spec` is `as_is` but for mesh dims along which terms are added.
  static bool adds_terms(const DTensorSpec& as_is, const DTensorSpec& spec) {
    Placements placements = spec.placements();
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      if (as_is.placements()[axis].is_partial() && placements[axis].is_replicate())
        placements[axis] = as_is.placements()[axis];
      if (placements[axis].is_partial() && !(placements[axis] == as_is.placements()[axis])) return false;
    }
    return as_is.has_parts_of(spec.with(std::move(placements)));
  }

  // ---- what it costs ----

  void price(Candidate& c) {
    std::vector<const RedistributePlan*> plans;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      if (c.inputs[i] == query_.inputs[i]) continue;
      const RedistributePlan* plan = add_price(c, query_.inputs[i], c.inputs[i]);
      if (plan == nullptr) return;
      plans.push_back(plan);
      ++c.moved;
    }
    for (size_t k = 0; k < c.outputs.size() && c.writes_back; ++k) {
      const int written = k < kMaxOutputs ? query_.call.op.writes[k] : -1;
      if (written >= 0 && add_price(c, c.outputs[k], query_.inputs[static_cast<size_t>(written)]) == nullptr) return;
    }
    if (plans.size() > 1) {
      const Saved saved = saved_by_joining(plans, query_.cost);
      c.cost -= saved.cost, c.collectives -= saved.collectives;
    }
    c.shards = 1;
    for (size_t axis = 0; axis < axes_ && !c.outputs.empty(); ++axis) {
      if (c.outputs[0]->placements()[axis].is_shard()) c.shards *= shape_[axis];
    }
  }

  // The plan from one layout to the other, whose price the candidate pays; null: there is none.
  const RedistributePlan* add_price(Candidate& c, const DTensorSpec* from, const DTensorSpec* to) {
    const std::pair key{from, to};
    auto it = prices_.find(key);
    if (it == prices_.end()) {
      Price price;
      try {
        RedistributePlan plan = plan_redistribution(*from, *to, query_.cost);
        price = {std::move(plan), ""};
      } catch (const UsageError& error) {
        price.refusal = error.what();
      }
      it = prices_.emplace(key, price).first;
    }
    c.refusal = it->second.refusal;
    if (!c.refusal.empty()) return nullptr;
    const RedistributePlan& plan = it->second.plan;
    c.cost += plan.cost, c.bytes += plan.bytes, c.collectives += plan.collectives();
    return &plan;
  }

  struct Price {
    RedistributePlan plan = {};
    std::string refusal = {};
  };
  const LayoutQuery& query_;
  const size_t axes_;
  const std::vector<int64_t> shape_;
  std::vector<Extents> input_sizes_, output_sizes_;
  ShardingRule rule_;
  std::vector<int64_t> factor_sizes_;
  std::vector<std::vector<int>> orders_;
  std::vector<size_t> written_;  // inputs that are written in place
  bool may_write_back_ = false;  // see Candidate::writes_back
  std::map<std::pair<const DTensorSpec*, const DTensorSpec*>, Price> prices_;
  mutable std::map<std::pair<const DTensorSpec*, const DTensorSpec*>, bool> same_parts_;
  Candidates result_;
};

}  // namespace

namespace {

struct OwnRules {
  std::mutex mutex;
  std::atomic<uint64_t> version = 0;
  std::map<const OpDef*, ShardingFunction> rules;
};
OwnRules& own_rules() {
  static OwnRules table;
  return table;
}

}  // namespace

void register_sharding(const OpDef& op, ShardingFunction rule) {
  OwnRules& own = own_rules();
  const std::lock_guard lock(own.mutex);
  if (rule) own.rules[&op] = std::move(rule);
  else own.rules.erase(&op);
  own.version.fetch_add(1, std::memory_order_release);
}

uint64_t sharding_rules_version() { return own_rules().version.load(std::memory_order_acquire); }

namespace {

ShardingFunction own_rule_of(const OpDef& op) {
  OwnRules& own = own_rules();
  const std::lock_guard lock(own.mutex);
  const auto it = own.rules.find(&op);
  return it == own.rules.end() ? nullptr : it->second;
}

// Every dim of every tensor is whole.
std::string whole_rule(const OpCall& call) {
  const auto spell = [](int ndim) { return " t[" + std::string(static_cast<size_t>(ndim), 'A') + "]"; };
  std::string text;
  for (const Tensor& t : call.inputs) text += spell(t.ndim());
  OutputMetas metas;
  call.op.infer(call, metas);
  text += " ->";
  for (int k = 0; k < metas.count; ++k) text += spell(metas.meta[k].sizes.ndim());
  return text;
}

}  // namespace

bool has_sharding(const OpDef& op) { return op.sharding != nullptr || own_rule_of(op) != nullptr; }

std::string sharding_of(const OpCall& call) {
  if (const ShardingFunction rule = own_rule_of(call.op)) return rule(call);
  return call.op.sharding != nullptr ? call.op.sharding(call) : whole_rule(call);
}

std::string Candidate::name() const {
  std::string text;
  for (const ShardingRow* row : rows) text += fmt::format("{}{}", text.empty() ? "" : ", ", row->name);
  return text;
}

Candidates choose_layout(const LayoutQuery& query) { return Chooser(query).run(); }

OpPlan plan_op(const LayoutQuery& query, const Candidates& candidates, const DeviceMesh& mesh) {
  const Candidate& c = candidates.all.at(static_cast<size_t>(candidates.chosen));
  OpPlan plan{
      .inputs = c.inputs, .outputs = c.outputs, .moves = c.moved > 0, .in_f32 = c.in_f32, .writes_back = c.writes_back};
  if (!mesh.has_coordinate()) return plan;
  const std::vector<int64_t>& here = mesh.coordinate();
  if (query.call.op.local_attrs != nullptr) {
    plan.has_box = true;
    plan.box = box_of(*c.outputs[0], here);
  }
  const ShardingRule rule = ShardingRule::parse(candidates.rule);
  for (const ShardingRow* row : c.rows) {
    if (row->masked_factor == 0) continue;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const int d = dim_with(rule.inputs()[i], row->masked_factor);
      if (d >= 0) {
        const IndexSet held = c.inputs[i]->indices(d, here);
        plan.range = held.ranges().empty() ? Range{} : held.ranges()[0];
        plan.index_values = c.inputs[i]->sizes()[static_cast<size_t>(d)];
      }
      if (rule.inputs()[i].opaque) plan.masked_input = static_cast<int>(i);
    }
    for (const std::string& dim : rule.inputs()[static_cast<size_t>(plan.masked_input)].dims)
      plan.index_dims.push_back(dim_with(rule.outputs()[0], dim[0]));
    break;  // axes that cut the same range
  }
  return plan;
}

}  // namespace tutti::dist
