#include "tutti/dist/stage.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "tutti/autograd/anomaly.h"
#include "tutti/autograd/tape.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/core/error.h"
#include "tutti/dist/conversion_ops.h"
#include "tutti/dist/joint_op.h"
#include "tutti/dist/plan_table.h"
#include "tutti/dist/redistribute.h"
#include "tutti/graph/held_wrappers.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/bitwise.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/sum_to.h"
#include "tutti/ops/where.h"
#include "tutti/runtime/numerics.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/tensor/overlap.h"

namespace tutti::dist {
namespace {

thread_local bool strict_placement = false, implicit_replication = false;

PlanTable& plans() { return RankContext::current().slot<PlanTable>(); }

// The inputs of one call: their parts and specs, without heap memory for the usual number.
class Operands {
 public:
  explicit Operands(const OpCall& call) : call_(call) {
    const size_t n = call.inputs.size();
    if (n > kInline) more_.resize(n), more_ids_.resize(n);
    for (const Tensor& t : call.inputs) {
      if (is_dtensor(t)) {
        mesh_ = dist::part_of(t, call.op.name).mesh.get();
        any_ = &t;
        break;
      }
    }
    TUTTI_ASSERT(mesh_ != nullptr, "{} came to the stage of distributed tensors without one", call.op.name);
    for (size_t i = 0; i < n; ++i) set(i, call.inputs[i]);
  }

  size_t size() const { return call_.inputs.size(); }
  const Tensor& wrapper(size_t i) const {
    return replicated_.empty() || !replicated_[i].defined() ? call_.inputs[i] : replicated_[i];
  }
  const Part& part(size_t i) const { return *parts()[i]; }
  std::span<const uint32_t> ids() const { return {more_ids_.empty() ? few_ids_.data() : more_ids_.data(), size()}; }
  const DeviceMesh& mesh() const { return *mesh_; }
  Mesh shared_mesh() const { return dist::part_of(*any_, call_.op.name).mesh; }
  std::vector<Tensor> wrappers() const {
    std::vector<Tensor> all;
    for (size_t i = 0; i < size(); ++i) all.push_back(wrapper(i));
    return all;
  }

 private:
  static constexpr size_t kInline = 8;
  const Part* const* parts() const { return more_.empty() ? few_.data() : more_.data(); }

  void set(size_t i, const Tensor& t) {
    const Tensor* held = &t;
    if (!is_dtensor(t)) {
      const bool is_number = t.numel() == 1 && t.ndim() <= 1;
      TUTTI_CHECK(is_number || implicit_replication,
                  "{}: input {} is the plain tensor {} beside a distributed one; distribute it with "
                  "distribute_tensor() or from_local(), or open an ImplicitReplicationScope "
                  "where every rank has the same",
                  describe_call(call_, *mesh_), i, describe(t));
      replicated_.resize(size());
      replicated_[i] = beside(*any_, t);
      held = &replicated_[i];
    }
    const Part& part = dist::part_of(*held, call_.op.name);
    TUTTI_CHECK(
        part.mesh->id() == mesh_->id(),
        "{}: input {} is on {}, the others on {}; bring them on one mesh with full_tensor() and distribute_tensor()",
        describe_call(call_, *mesh_), i, part.mesh->to_string(), mesh_->to_string());
    (more_.empty() ? few_.data() : more_.data())[i] = &part;
    (more_ids_.empty() ? few_ids_.data() : more_ids_.data())[i] = part.spec->id();
  }

  const OpCall& call_;
  const DeviceMesh* mesh_ = nullptr;
  const Tensor* any_ = nullptr;
  std::array<const Part*, kInline> few_;
  std::array<uint32_t, kInline> few_ids_;
  std::vector<const Part*> more_;
  std::vector<uint32_t> more_ids_;
  std::vector<Tensor> replicated_;  // wrappers of numbers, where there are any
};

// The layout of the leaf whose gradient the call computes, where it computes one of that size and can do so in parts: a
// gradient that lies as its leaf needs to go nowhere.
const DTensorSpec* wanted_layout(const OpCall& call, const Operands& operands) {
  const autograd::Node* node = call.op.local_attrs == nullptr ? nullptr : autograd::running_node();
  if (node == nullptr) return nullptr;
  std::optional<OutputMetas> metas;
  for (const autograd::Edge& edge : node->edges) {
    if (!is_dtensor(edge.leaf)) continue;
    if (!metas) call.op.infer({call.op, operands.wrappers(), call.attrs}, metas.emplace());
    const Part& part = dist::part_of(edge.leaf, call.op.name);
    if (part.mesh->id() == operands.mesh().id() && for_choices(edge.leaf).sizes() == metas->meta[0].sizes)
      return part.spec;
  }
  return nullptr;
}

std::string cheapest_moves(const OpCall& call, const Operands& operands, const OpPlan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    if (plan.inputs[i] == operands.part(i).spec) continue;
    text += fmt::format("{}input {} to {}", text.empty() ? "" : ", ", i, to_string(plan.inputs[i]->placements()));
  }
  return fmt::format("{}: {}", call.op.name, text);
}

std::shared_ptr<const PlannedCall> make_plan(const OpCall& call, const Operands& operands, const DTensorSpec* wanted,
                                             std::span<const uint64_t> symbols) {
  const OpDef& op = call.op;
  const DeviceMesh& mesh = operands.mesh();
  TUTTI_CHECK(!op.resizes && std::all_of(std::begin(op.becomes), std::end(op.becomes), [](int8_t b) { return b < 0; }),
              "{}: gives a tensor other memory, which a distributed one does not have; do it to its to_local()",
              describe_call(call, mesh));
  TUTTI_CHECK(!strict_placement || has_sharding(op),
              "{}: the op has no sharding rule, and a StrictPlacementScope is open; give it one in its facet "
              "`sharding`, or by register_sharding()",
              describe_call(call, mesh));
  const std::vector<Tensor> wrappers = operands.wrappers();
  const OpCall whole{op, wrappers, call.attrs};
  OutputMetas metas;
  op.infer(whole, metas);
  LayoutQuery query{.call = whole,
                    .inputs = {},
                    .outputs = {metas.meta, metas.meta + metas.count},
                    .strict = numerics_mode() == NumericsMode::strict,
                    .symbols = {symbols.begin(), symbols.end()},
                    .wanted = wanted,
                    .cost = cost_model_of(mesh)};
  for (size_t i = 0; i < operands.size(); ++i) query.inputs.push_back(operands.part(i).spec);
  const Candidates candidates = choose_layout(query);
  if (candidates.chosen < 0) {
    std::string reasons;
    for (const Candidate& c : candidates.all) reasons += fmt::format("\n  {}: {}", c.name(), c.refusal);
    throw UsageError(
        fmt::format("{}: no row of its sharding rule '{}' can be taken; write into a tensor of another layout, or use "
                    "the op's out-of-place form:{}",
                    describe_call(call, mesh), candidates.rule, reasons));
  }
  auto planned = std::make_shared<PlannedCall>();
  planned->mesh = operands.shared_mesh();
  planned->plan = plan_op(query, candidates, mesh);
  const bool only_replicates = candidates.rows.size() == 1 && planned->plan.moves;
  TUTTI_CHECK(!strict_placement || !planned->plan.moves,
              "{}: its inputs would have to move, and a StrictPlacementScope is open; move them yourself with "
              "redistribute() ({})",
              describe_call(call, mesh), cheapest_moves(call, operands, planned->plan));
  if (only_replicates && plans().is_new_warning(op)) {
    fmt::print(stderr,
               "tutti: {}: this op has no sharding rule but the replicated one, so its inputs are gathered, {:.0f} "
               "bytes a rank; further calls are not reported\n",
               describe_call(call, mesh), candidates.all[static_cast<size_t>(candidates.chosen)].bytes);
  }
  return planned;
}

// Indices of rows that other ranks hold become the first of this rank; `outside` says where they were. Those of no row
// at all stay out of range, so that the op refuses them.
Tensor local_indices(const Tensor& indices, const Range& range, int64_t rows, Tensor& outside) {
  const Tensor before = bit_and(ge(indices, 0), lt(indices, range.begin)),
               behind = bit_and(ge(indices, range.end), lt(indices, rows));
  outside = bit_or(before, behind);
  return where(outside, 0, sub(indices, range.begin));
}

// UsageError for an index of no row. Its place, and how many rows there are, are those of the whole, as on one rank.
void check_indices(const OpCall& call, const OpPlan& plan, const Tensor& indices, const DeviceMesh& mesh) {
  if (indices.impl()->traced >= 0) return;
  const DTensorSpec& spec = *plan.inputs[static_cast<size_t>(plan.masked_input)];
  const std::vector<int64_t> values = facets::dense_indices(indices);
  const auto wrong =
      std::find_if(values.begin(), values.end(), [&](int64_t v) { return v < 0 || v >= plan.index_values; });
  if (wrong == values.end()) return;
  Extents at = indices.extents();
  int64_t rest = wrong - values.begin();
  for (int d = at.ndim() - 1; d >= 0; --d) {
    const int64_t extent = at[static_cast<size_t>(d)];
    at[static_cast<size_t>(d)] = spec.indices(d, mesh.coordinate()).at(rest % extent);
    rest /= extent;
  }
  throw UsageError(fmt::format("{}: index {} at position {} is out of range in {}; {}", call.op.name, *wrong, at,
                               describe_call(call, mesh), facets::legal_indices(plan.index_values)));
}

Tensor without_foreign_rows(const Tensor& rows, const Tensor& outside, const std::vector<int>& dims) {
  Shape sizes(static_cast<size_t>(rows.ndim()), 1);
  for (size_t d = 0; d < dims.size(); ++d) sizes[static_cast<size_t>(dims[d])] = outside.size(static_cast<int64_t>(d));
  return where(reshape(outside, sizes), -0.0, rows);
}

class DTensorStage final : public Stage {
 public:
  void handle(const OpCall& call, std::span<Tensor> outputs) override {
    // What is called from here works on parts.
    const StageScope below(0, mask_of(StagePlace::sharding));
    graph::meet_wrappers(call);
    if (convert(call, outputs) || run_jointly(call, outputs)) return;
    if (graph::traces_symbols()) return compute_symbolic(call, outputs);
    compute_in_parts(call, {call.attrs, call.inputs, nullptr, call}, outputs);
  }

 private:
  // What a call is in a trace with symbolic sizes; else its own attrs and inputs.
  struct AsWritten {
    const Attrs& attrs;
    std::span<const Tensor> inputs;
    const OutputMetas* outputs = nullptr;  // null: there are no symbols
    OpCall called;                         // with the sizes of the traced call
    bool is_symbolic() const { return outputs != nullptr; }
  };

  // Plans are chosen by sizes that do not depend on the traced call, and hold for all because no dim with a symbol is
  // cut and the sharding rule is the same for all.
  static void compute_symbolic(const OpCall& call, std::span<Tensor> outputs) {
    std::vector<Tensor> called, inputs;
    for (const Tensor& t : call.inputs) called.push_back(as_called(t)), inputs.push_back(for_choices(t));
    const Attrs called_attrs = graph::attrs_as_called(call.attrs), attrs = graph::attrs_for_choices(call.attrs);
    if (!has_rule_of(call, {call.op, inputs, attrs}))
      graph::refuse_symbols(fmt::format("the sharding rule of {} depends on sizes", call.op.name));
    OutputMetas metas;
    call.op.infer(call, metas);
    compute_in_parts({call.op, inputs, attrs}, {call.attrs, call.inputs, &metas, {call.op, called, called_attrs}},
                     outputs);
  }

  // Whether the rule is the same for all values of the symbols; guards say under which conditions.
  static bool has_rule_of(const OpCall& call, const OpCall& chosen) {
    try {
      return sharding_of(call) == sharding_of(chosen);
    } catch (const UsageError&) {
      return false;  // it asks for integers
    }
  }

  static void check_cut_dims(const OpCall& call, const AsWritten& written, const OpPlan& plan) {
    const auto check = [&](const Shape& sizes, const DTensorSpec& spec) {
      for (size_t d = 0; d < sizes.size(); ++d) {
        if (sizes[d].is_symbolic() && !spec.axes_of(static_cast<int>(d)).empty())
          graph::refuse_symbols(fmt::format("{} divides dim {} of {} over ranks", call.op.name, d, spec.to_string()));
      }
    };
    for (size_t i = 0; i < written.inputs.size(); ++i) check(written.inputs[i].sizes(), *plan.inputs[i]);
    for (size_t k = 0; k < plan.outputs.size(); ++k) check(written.outputs->meta[k].sizes, *plan.outputs[k]);
  }

  // See LayoutQuery::symbols; empty: there are none.
  static std::vector<uint64_t> symbols_of(const AsWritten& written) {
    std::vector<uint64_t> symbols;
    if (!written.is_symbolic()) return symbols;
    const auto add = [&](const Shape& sizes) {
      uint64_t dims = 0;
      for (size_t d = 0; d < sizes.size(); ++d) dims |= static_cast<uint64_t>(sizes[d].is_symbolic()) << d;
      symbols.push_back(dims);
    };
    for (const Tensor& t : written.inputs) add(t.sizes());
    for (int k = 0; k < written.outputs->count; ++k) add(written.outputs->meta[k].sizes);
    return symbols;
  }

  static void compute_in_parts(const OpCall& call, const AsWritten& written, std::span<Tensor> outputs) {
    const Operands operands(call);
    const DTensorSpec* wanted = wanted_layout(call, operands);
    const std::vector<uint64_t> symbols = symbols_of(written);
    const PlanQuery query{.op = call.op,
                          .attrs = call.attrs,
                          .specs = operands.ids(),
                          .wanted = wanted,
                          .symbols = symbols,
                          .strict = numerics_mode() == NumericsMode::strict,
                          .strict_placement = strict_placement,
                          .token_grain = token_grain(),
                          .contraction_leaf = codegen::contraction_leaf()};
    std::shared_ptr<const PlannedCall> planned = plans().find(query, operands.mesh());
    if (planned == nullptr) {
      planned = make_plan(call, operands, wanted, symbols);
      plans().put(query, planned);
    }
    if (written.is_symbolic()) check_cut_dims(call, written, planned->plan);
    for (const int8_t target : call.op.writes) {
      if (target < 0) continue;
      operands.part(static_cast<size_t>(target)).check_writable(call.op.name);
      // What overlaps in the whole may not overlap in the part of a rank.
      refuse_overlap(call.op.name, as_called(operands.wrapper(static_cast<size_t>(target))));
    }
    run(call, written, operands, planned->plan, outputs);
  }

  static void run(const OpCall& call, const AsWritten& written, const Operands& operands, const OpPlan& plan,
                  std::span<Tensor> outputs) {
    const Mesh mesh = operands.shared_mesh();
    std::array<Tensor, 8> few;
    std::vector<Tensor> more;
    if (operands.size() > few.size()) more.resize(operands.size());
    const std::span<Tensor> parts{more.empty() ? few.data() : more.data(), operands.size()};
    std::vector<PartMove> moves;
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = operands.part(i).local;
    // Refuses, before anything moves and on all ranks alike, what cannot be seen of the whole.
    Tensor seen = call.op.view == nullptr ? Tensor() : view_of_whole(call, written, operands);
    if (plan.moves) {
      for (size_t i = 0; i < parts.size(); ++i) {
        const Tensor* known = operands.part(i).reduced_to(*plan.inputs[i]);
        if (known != nullptr) parts[i] = *known;
        moves.push_back({known != nullptr ? plan.inputs[i] : operands.part(i).spec, plan.inputs[i]});
      }
      redistribute_parts(parts, moves, mesh);
      for (size_t i = 0; i < parts.size(); ++i) operands.part(i).note_reduced(*plan.inputs[i], parts[i]);
    }
    const bool is_moved_view = call.op.view != nullptr && operands.part(0).spec != plan.inputs[0];
    if (is_moved_view) {
      // A dense part can be seen in every way. A view reads nothing, and what it leaves out, or all of it where nobody
      // reads the view, would not be waited for.
      parts[0] = comm::functional::wait_tensor(contiguous(parts[0]));
      // What a rank cuts out of its part would be written on that rank only.
      if (is_in_memory_of(parts[0], operands.part(0))) parts[0] = clone(parts[0]);
    }
    if (plan.writes_back) set_apart(call, operands, plan, parts);
    std::array<Tensor, kMaxOutputs> results;
    const std::span<Tensor> locals{results.data(), outputs.size()};
    if (!mesh->has_coordinate()) {
      for (size_t k = 0; k < locals.size(); ++k) locals[k] = zeros({0}, plan.outputs[k]->local_dtype());
    } else {
      run_here(call, written, operands, plan, parts, locals);
    }
    const bool is_copy = is_moved_view || (call.op.view != nullptr && !is_in_memory_of(parts[0], operands.part(0)));
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (k < kMaxOutputs && call.op.writes[k] >= 0) {
        const auto target = static_cast<size_t>(call.op.writes[k]);
        if (plan.writes_back) write_back(locals[k], *plan.outputs[k], operands.part(target), mesh);
        outputs[k] = written.inputs[target];
      } else if (is_copy) {
        outputs[k] = wrap_copy(std::move(locals[k]), *plan.outputs[k], mesh, operands.part(0), is_moved_view);
      } else if (call.op.view != nullptr) {
        outputs[k] = view_around(std::move(seen), std::move(locals[k]), operands.part(0), *plan.outputs[k]);
      } else {
        outputs[k] = wrap(std::move(locals[k]), *plan.outputs[k], mesh);
      }
    }
  }

  static bool is_in_memory_of(const Tensor& local, const Part& part) {
    return local.storage().get() == part.local.storage().get();
  }

  // What the op writes in the place of terms that are added first: others may have the sum, too.
  static void set_apart(const OpCall& call, const Operands& operands, const OpPlan& plan, std::span<Tensor> parts) {
    for (const int8_t written : call.op.writes) {
      if (written < 0) continue;
      const auto i = static_cast<size_t>(written);
      if (plan.inputs[i] != operands.part(i).spec) parts[i] = clone(parts[i]);
    }
  }

  // Terms whose reduction is `value`, a part in the layout `spec`, in the memory of `target`.
  static void write_back(const Tensor& value, const DTensorSpec& spec, const Part& target, const Mesh& mesh) {
    const Tensor terms = redistributed_part(value, spec, *target.spec, mesh);
    if (!terms.is_same(target.local)) copy_(target.local, terms);
  }

  // A view of all elements of a dense tensor that is dense is so in any sizes.
  static Tensor view_around(Tensor view, Tensor local, const Part& of, const DTensorSpec& spec) {
    const auto elements = [](const Tensor& t) { return numel_of(t.sizes()).raw(); };
    const bool is_dense =
        local.impl()->traced >= 0 && of.is_dense && view.is_contiguous() && elements(local) == elements(of.local);
    return wrap_view(std::move(view), std::move(local), spec, of.mesh, is_dense, of.copied);
  }

  // The sizes and strides of a view, in the storage of what is seen: they follow from those of the whole, not from this
  // rank's part.
  static Tensor view_of_whole(const OpCall& call, const AsWritten& written, const Operands& operands) {
    if (written.is_symbolic()) return call.op.view(written.called);
    const Tensor whole[] = {operands.wrapper(0)};
    return call.op.view({call.op, whole, call.attrs});
  }

  // Parts may have other strides than the whole, and be visible in fewer ways.
  static void compute(const OpDef& op, std::span<Tensor> parts, const Attrs& attrs, std::span<Tensor> locals) {
    if (op.view == nullptr || parts[0].is_contiguous()) return apply(op, parts, attrs, locals);
    try {
      apply(op, parts, attrs, locals);
    } catch (const UsageError&) {
      parts[0] = contiguous(parts[0]);
      apply(op, parts, attrs, locals);
    }
  }

  // The attrs of a part, in which sizes that are those of the whole are the symbols that these are.
  static Attrs with_symbols(const OpCall& call, const AsWritten& written, const Attrs& local) {
    std::vector<SymInt> symbols, called;
    Attrs each = written.attrs, as_whole = local, made = local;
    each.map_sizes([&](SymInt s) { return symbols.push_back(s), s; });
    each = call.attrs;
    each.map_sizes([&](SymInt s) { return called.push_back(s), s; });
    size_t at = 0, count = 0;
    as_whole.map_sizes([&](SymInt s) { return ++count, at < called.size() ? called[at++] : s; });
    if (count == called.size() && symbols.size() == called.size() && as_whole == call.attrs) {
      at = 0;
      made.map_sizes([&](SymInt s) {
        const size_t i = at++;
        return s == called[i] ? symbols[i] : s;
      });
      return made;
    }
    for (const Tensor& t : written.inputs) symbols.insert(symbols.end(), t.sizes().begin(), t.sizes().end());
    const bool are_integers =
        std::none_of(symbols.begin(), symbols.end(), [](const SymInt& s) { return s.is_symbolic(); });
    if (!are_integers) graph::refuse_symbols(fmt::format("the part of {} on a rank depends on sizes", call.op.name));
    return local;
  }

  static void run_here(const OpCall& call, const AsWritten& written, const Operands& operands, const OpPlan& plan,
                       std::span<Tensor> parts, std::span<Tensor> locals) {
    Attrs own;
    const Attrs* attrs = &written.attrs;
    if (plan.has_box) {
      const std::vector<Tensor> wrappers = operands.wrappers();
      own = call.op.local_attrs({call.op, wrappers, call.attrs}, plan.box);
      if (written.is_symbolic()) own = with_symbols(call, written, own);
      attrs = &own;
    }
    if (plan.in_f32) {
      if (attrs != &own) own = *attrs, attrs = &own;
      own.set_output_dtype(plan.outputs[0]->local_dtype());
    }
    Tensor outside, all_indices;
    if (plan.masked_input >= 0) {
      Tensor& indices = parts[static_cast<size_t>(plan.masked_input)];
      all_indices = indices;
      if (plan.range.size() == 0) {
        check_indices(call, plan, all_indices, operands.mesh());
        if (written.is_symbolic()) graph::refuse_symbols(fmt::format("a rank has no rows for {}", call.op.name));
        locals[0] = full(to_shape(plan.outputs[0]->local_sizes(operands.mesh().coordinate())), -0.0,
                         plan.outputs[0]->local_dtype());
        return;
      }
      indices = local_indices(indices, plan.range, plan.index_values, outside);
    }
    try {
      compute(call.op, parts, *attrs, locals);
    } catch (const UsageError&) {
      if (outside.defined()) check_indices(call, plan, all_indices, operands.mesh());
      throw;
    }
    if (outside.defined()) locals[0] = without_foreign_rows(locals[0], outside, plan.index_dims);
    for (size_t k = 0; k < locals.size(); ++k) {
      if (locals[k].dtype() != plan.outputs[k]->local_dtype())
        locals[k] = cast(locals[k], plan.outputs[k]->local_dtype());
    }
  }
};

}  // namespace

StageMask stage() {
  static DTensorStage instance;
  static const StageMask mask = register_stage("distributed tensors", StagePlace::sharding, &instance);
  return mask;
}

StrictPlacementScope::StrictPlacementScope() : before_(std::exchange(strict_placement, true)) {}
StrictPlacementScope::~StrictPlacementScope() { strict_placement = before_; }
ImplicitReplicationScope::ImplicitReplicationScope() : before_(std::exchange(implicit_replication, true)) {}
ImplicitReplicationScope::~ImplicitReplicationScope() { implicit_replication = before_; }

std::string describe_call(const OpCall& call, const DeviceMesh& mesh) {
  std::string inputs;
  for (const Tensor& t : call.inputs) {
    const std::string layout = is_dtensor(t) ? to_string(part_of(t, call.op.name).spec->placements()) : " (plain)";
    inputs += fmt::format("{}{}{}{}", inputs.empty() ? "" : ", ", name_of(t.dtype()), t.sizes(), layout);
  }
  return fmt::format("{}({}) on {}", call.op.name, inputs, mesh.to_string());
}

PlanCounts plan_counts() { return {plans().size(), plans().made()}; }

}  // namespace tutti::dist
