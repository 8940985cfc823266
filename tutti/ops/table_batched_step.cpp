#include "tutti/ops/table_batched_step.h"

#include <algorithm>
#include <cmath>

#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/tables/gradients.h"
#include "tutti/ops/tables/row_formulas.h"
#include "tutti/ops/tables/row_steps.h"
#include "tutti/ops/tables/table_definition.h"

namespace tutti {
namespace {

using facets::shards_at;
using facets::step_attrs;
using facets::TableAttrs;
using facets::tables_written;

void infer_step(const OpCall& call, OutputMetas& out) {
  const TableAttrs& a = step_attrs(call);
  const size_t n = tables_written(call);
  const Tensor& table = call[0];
  TUTTI_CHECK(table.ndim() == 2 && table.size(0) == a.rows && table.size(1) == a.columns &&
                  compute_dtype(table.dtype()) == DType::f32 && !is_fp8(table.dtype()),
              "{}: the table is {}; expected [{}, {}] in f32, bf16 or f16", call.op.name, describe(table), a.rows,
              a.columns);
  for (size_t k = 1; k < n; ++k) {
    const bool counts = call[k].dtype() == DType::i64;  // the step in which a row was seen
    TUTTI_CHECK((counts || call[k].dtype() == DType::f32) && ((!counts && call[k].sizes() == table.sizes()) ||
                                                              (call[k].ndim() == 1 && call[k].size(0) == a.rows)),
                "{}: state {} beside the table {}; expected f32 of its sizes, or one element a row", call.op.name,
                describe(call[k]), describe(table));
  }
  TUTTI_CHECK(call[n].dtype() == DType::f32 && call[n].ndim() == 1 && call[n + 1].dtype() == DType::i64 &&
                  call[n + 1].ndim() == 1 && call[n + 2].dtype() == DType::f32 && call[n + 2].ndim() == 1 &&
                  call[n + 3].dtype() == DType::f32 && call[n + 3].ndim() == 1,
              "{}: the numbers are {}, {}, {} and {}; expected f32, i64, f32 and f32 of one dim", call.op.name,
              describe(call[n]), describe(call[n + 1]), describe(call[n + 2]), describe(call[n + 3]));
  check_shards(call, a, shards_at(call));
  for (size_t s = 0; s < static_cast<size_t>(a.shards); ++s)
    TUTTI_CHECK(gradient_of_shard(call, a, shards_at(call), static_cast<int64_t>(s)).dtype() != DType::f64,
                "{}: the gradient of shard {} is f64; expected f32, bf16 or f16", call.op.name, s);
  for (size_t k = 0; k < n; ++k) out.add(call[k].dtype(), call[k].sizes());
}

// ---- the ops --------------------------------------------------------------------------------------------------------

std::string sharding(const OpCall& call) {
  std::string outputs;
  for (size_t k = 0; k < tables_written(call); ++k)
    outputs += fmt::format(" y{}[{}]", k, std::string(static_cast<size_t>(call[k].ndim()), 'A'));
  return facets::whole_operands(call, 0) + "->" + outputs;
}

// Whether state k has an element for each row, or for each element.
enum class StateKind : uint8_t { of_row, of_element, seen };

Tensor state_of(StateKind kind, int64_t rows, int64_t columns) {
  const Shape sizes = kind == StateKind::of_element ? Shape{rows, columns} : Shape{rows};
  return zeros(sizes, kind == StateKind::seen ? DType::i64 : DType::f32);
}

int64_t rows_stepped(const facets::TableSample& s) {
  const OpDef named{.name = "rows_stepped"};
  const Attrs attrs = Attrs::of(s.attrs);
  return static_cast<int64_t>(facets::table_definition({named, s.shards, attrs}, s.attrs, 0).size());
}

std::vector<Sample> samples(std::initializer_list<StateKind> states, int decay) {
  std::vector<Sample> list;
  const auto add = [&](const facets::TableSample& s, const char* name, DType dtype, bool at_random, double max_norm,
                       bool is_part = false) {
    const auto number = [](double x) { return static_cast<float>(x); };
    Sample sample{name, {facets::sample_tensor(21, {s.attrs.rows, s.attrs.columns}, dtype)}, Attrs::of(s.attrs)};
    for (const StateKind kind : states)
      sample.inputs.push_back(kind == StateKind::seen
                                  ? facets::sample_tensor(23, {s.attrs.rows}, DType::i64, 0, 4)
                                  : facets::sample_tensor(22 + static_cast<uint64_t>(sample.inputs.size()),
                                                          kind == StateKind::of_row
                                                              ? Extents{s.attrs.rows}
                                                              : Extents{s.attrs.rows, s.attrs.columns},
                                                          DType::f32, 0.5, 2.0));
    sample.inputs.push_back(Tensor::of<float>(
        {0.1f, 1e-3f, 0.9f, 0.1f, 0.99f, 0.01f, 0.41f, 0.05f, 0.03f, number(decay), 0.2f, number(max_norm)}));
    sample.inputs.push_back(Tensor::of<int64_t>({5, 77, at_random, is_part ? 38 : 0, is_part ? 9 : s.attrs.columns}));
    for (const uint64_t seed : {24, 25})
      sample.inputs.push_back(is_part ? facets::sample_tensor(seed, {rows_stepped(s)}, DType::f32, 0.5, 2.0)
                                      : Tensor::empty({0}, DType::f32));
    sample.inputs.insert(sample.inputs.end(), s.shards.begin(), s.shards.end());
    list.push_back(std::move(sample));
  };
  for (const facets::TableSample& s : facets::table_samples()) {
    if (s.name == "sum") add(s, "sum", DType::f32, false, 0);
    if (s.name == "three_shards") add(s, "three_shards", DType::f32, false, 1.5);
    if (s.name == "weighted_mean_bf16") add(s, "bf16", DType::bf16, false, 0);
    if (s.name == "mean") add(s, "f16_at_random", DType::f16, true, 0);
    if (s.name == "mean") add(s, "part_f16_at_random", DType::f16, true, 0, true);
    if (s.name == "sum") add(s, "part", DType::f32, false, 1.0, true);
    if (s.name == "sequence") add(s, "sequence_bf16_at_random", DType::bf16, true, 0);
    if (s.name == "no_rows") add(s, "no_rows", DType::f32, false, 0);
  }
  return list;
}

template <class Formula>
OpDef table_step(const char* name, int states, std::vector<Sample> (*samples)()) {
  OpDef op{.name = name,
           .num_inputs = -1,
           .num_outputs = states + 1,
           .infer = infer_step,
           .reference = facets::reference_step<Formula>,
           .gradient = {.none = "an optimizer writes its parameters in place, outside of any tape"},
           .kernel = facets::run_step<Formula>,
           .sharding = sharding,
           .samples = samples};
  for (int k = 0; k <= states; ++k) op.writes[k] = static_cast<int8_t>(k);
  return op;
}

const OpDef kSgd = table_step<facets::SgdOfRow>("table_batched_sgd_", 0, [] { return samples({}, 0); });
const OpDef kAdagrad =
    table_step<facets::AdagradOfRow>("table_batched_adagrad_", 1, [] { return samples({StateKind::of_element}, 0); });
const OpDef kRowwiseAdagrad = table_step<facets::RowwiseAdagrad>("table_batched_rowwise_adagrad_", 1,
                                                                 [] { return samples({StateKind::of_row}, 1); });
const OpDef kGlobalDecay = table_step<facets::RowwiseAdagrad>(
    "table_batched_rowwise_adagrad_global_decay_", 2, [] { return samples({StateKind::of_row, StateKind::seen}, 3); });
const OpDef kAdam = table_step<facets::AdamOfRow<false>>(
    "table_batched_adam_", 2, [] { return samples({StateKind::of_element, StateKind::of_element}, 0); });
const OpDef kPartialRowwiseAdam = table_step<facets::AdamOfRow<true>>(
    "table_batched_partial_rowwise_adam_", 2, [] { return samples({StateKind::of_element, StateKind::of_row}, 0); });

struct Kind {
  const OpDef& op;
  std::vector<StateKind> states;
};
Kind kind_of(const TableStep& o) {
  using enum StateKind;
  switch (o.optimizer) {
    case TableOptimizer::sgd:
      return {kSgd, {}};
    case TableOptimizer::adagrad:
      return {kAdagrad, {of_element}};
    case TableOptimizer::rowwise_adagrad:
      if (o.decay == TableDecay::global) return {kGlobalDecay, {of_row, seen}};
      return {kRowwiseAdagrad, {of_row}};
    case TableOptimizer::adam:
      return {kAdam, {of_element, of_element}};
    case TableOptimizer::partial_rowwise_adam:
      return {kPartialRowwiseAdam, {of_element, of_row}};
  }
  throw UsageError(fmt::format("table_batched_step_: no optimizer has number {}", static_cast<int>(o.optimizer)));
}

void check_options(const TableStep& o) {
  const bool rowwise = o.optimizer == TableOptimizer::rowwise_adagrad;
  const bool adam = o.optimizer == TableOptimizer::adam || o.optimizer == TableOptimizer::partial_rowwise_adam;
  for (const auto& [name, value] : {std::pair{"lr", o.lr},
                                    {"eps", o.eps},
                                    {"weight_decay", o.weight_decay},
                                    {"least_decay", o.least_decay},
                                    {"max_norm", o.max_norm}})
    TUTTI_CHECK(std::isfinite(value) && value >= 0, "table_batched_step_: {} is {}; expected 0 or more", name, value);
  for (const double beta : {o.beta1, o.beta2})
    TUTTI_CHECK(beta >= 0 && beta < 1, "table_batched_step_: beta is {}; expected at least 0 and less than 1", beta);
  TUTTI_CHECK(o.step >= 1, "table_batched_step_: step is {}; the first step is 1", o.step);
  TUTTI_CHECK(rowwise || (o.decay == TableDecay::none && o.max_norm == 0 && o.least_decay == 0),
              "table_batched_step_: decay modes, least_decay and max_norm belong to row-wise Adagrad");
  TUTTI_CHECK(o.weight_decay == 0 || adam || (rowwise && o.decay != TableDecay::none),
              "table_batched_step_: weight_decay is {}, but {}", o.weight_decay,
              rowwise ? "decay is none; choose l2, decoupled or global" : "SGD and Adagrad do not decay");
}

void check_part(const TableStep& o, const PartOfTable& part, int64_t columns, int64_t all_columns) {
  TUTTI_CHECK(part.first_row >= 0 && part.first_column >= 0 && part.first_column <= all_columns - columns,
              "table_batched_step_: a part of {} columns from column {} and row {} on, of a table of {} columns",
              columns, part.first_column, part.first_row, all_columns);
  if (columns == all_columns) return;
  TUTTI_CHECK(part.squares.defined() || !takes_row_means(o.optimizer),
              "table_batched_step_: the table has {} of {} columns, and the optimizer takes means over rows; give it "
              "the sums of squares of whole rows",
              columns, all_columns);
  TUTTI_CHECK(
      part.new_squares.defined() || o.max_norm == 0,
      "table_batched_step_: the table has {} of {} columns, and max_norm is the norm of whole rows; give it the "
      "sums of squares of new rows",
      columns, all_columns);
}

}  // namespace

TableStateNames names_of(TableOptimizer optimizer) {
  switch (optimizer) {
    case TableOptimizer::sgd:
      return {};
    case TableOptimizer::adagrad:
    case TableOptimizer::rowwise_adagrad:
      return {"h", ""};
    case TableOptimizer::adam:
    case TableOptimizer::partial_rowwise_adam:
      break;
  }
  return {"m", "v"};
}

bool takes_row_means(TableOptimizer optimizer) {
  return optimizer == TableOptimizer::rowwise_adagrad || optimizer == TableOptimizer::partial_rowwise_adam;
}

TableState table_state(const TableStep& options, int64_t rows, int64_t columns) {
  check_options(options);
  TableState state;
  for (const StateKind kind : kind_of(options).states) {
    Tensor& place = kind == StateKind::seen ? state.seen : state.first.defined() ? state.second : state.first;
    place = state_of(kind, rows, columns);
  }
  return state;
}

void table_batched_step_(const Tensor& table, const TableState& state, std::span<const TableUse> uses,
                         const TableOfBatch& which, const TableStep& o, const TableBatchOptions& batch,
                         const PartOfTable& part) {
  check_options(o);
  const Kind kind = kind_of(o);
  TUTTI_CHECK(which.number >= 0 && which.number < std::ssize(which.columns),
              "{}: table number {} of the {} tables whose columns are given", kind.op.name, which.number,
              which.columns.size());
  const int64_t columns = which.columns[static_cast<size_t>(which.number)];
  const int64_t all_columns = part.all_columns < 0 ? columns : part.all_columns;
  check_part(o, part, columns, all_columns);
  std::vector<Tensor> inputs = {table}, outputs(kind.states.size() + 1);
  for (const StateKind k : kind.states) {
    const Tensor& given = k == StateKind::seen ? state.seen : inputs.size() == 1 ? state.first : state.second;
    const int64_t ndim = k == StateKind::of_element ? 2 : 1;
    TUTTI_CHECK(
        given.defined() && given.ndim() == ndim && given.dtype() == (k == StateKind::seen ? DType::i64 : DType::f32),
        "{}: state {} is {}; expected what table_state() makes", kind.op.name, inputs.size(), describe(given));
    inputs.push_back(given);
  }
  inputs.push_back(beside(table, Tensor::of<float>(facets::row_numbers(o))));
  inputs.push_back(beside(table, Tensor::of<int64_t>({o.step, static_cast<int64_t>(o.seed), o.stochastic_rounding,
                                                      part.first_row * all_columns + part.first_column, all_columns})));
  for (const Tensor& squares : {part.squares, part.new_squares})
    inputs.push_back(squares.defined() ? squares : beside(table, Tensor::empty({0}, DType::f32)));
  const facets::ShardInputs shards = facets::inputs_of_uses(kind.op.name, uses, which, batch.pooling);
  inputs.insert(inputs.end(), shards.list.begin(), shards.list.end());
  apply(kind.op, inputs,
        Attrs::of(TableAttrs{which.number, which.rows, columns, static_cast<int64_t>(uses.size()), shards.weighted,
                             batch.pooling, batch.bounds}),
        outputs);
}

}  // namespace tutti

TUTTI_OPS(table_batched_step, &kSgd, &kAdagrad, &kRowwiseAdagrad, &kGlobalDecay, &kAdam, &kPartialRowwiseAdam)
