#include "tutti/ops/embedding_bag_backward.h"

#include <algorithm>
#include <array>

#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/clamp.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/indexing/bags.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/ops/indexing/row_outputs.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/scan.h"
#include "tutti/ops/scatter_add.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/sum_to.h"
#include "tutti/ops/where.h"

namespace tutti {
namespace {

using facets::bag_attrs;
using facets::BagAttrs;

// The fourth input, if there is one: for max the chosen entries [B, D], else the entries' weights [P].
bool is_max(const OpCall& call) { return bag_attrs(call).mode == BagMode::max; }

void check_gradient(const OpCall& call) {
  facets::check_bag_operands(call);
  TUTTI_CHECK(call[0].size(0) == facets::number_of_bags(call), "{}: the gradient is {} for {} bags", call.op.name,
              describe(call[0]), facets::number_of_bags(call));
}

void infer_dense(const OpCall& call, OutputMetas& out) {
  check_gradient(call);
  out.add(compute_dtype(call[0].dtype()), {bag_attrs(call).vocab, call[0].size(1)});
}

void infer_rows(const OpCall& call, OutputMetas& out) {
  check_gradient(call);
  facets::infer_row_outputs(out, compute_dtype(call[0].dtype()), call[1].size(0), bag_attrs(call).vocab,
                            call[0].size(1));
}

// The gradient, for a mean divided by the lengths of the bags.
template <class Wide>
Tensor terms_of(const OpCall& call, const std::vector<int64_t>& borders) {
  const Tensor grad = facets::dense_as(call[0], dtype_of<Wide>);
  if (bag_attrs(call).mode != BagMode::mean) return grad;
  const std::vector<int64_t> lengths = facets::bag_lengths(call, borders);
  const Tensor terms = Tensor::empty(grad.extents(), grad.dtype());
  const int64_t columns = grad.extents()[1];
  for (int64_t b = 0; b < grad.extents()[0]; ++b) {
    const Wide length = static_cast<Wide>(std::max<int64_t>(lengths[static_cast<size_t>(b)], 1));
    for (int64_t d = b * columns; d < (b + 1) * columns; ++d)
      terms.template data<Wide>()[d] = grad.template data<Wide>()[d] / length;
  }
  return terms;
}

template <class Wide, class Write>
void with_sums(const OpCall& call, Write write) {
  const std::vector<int64_t> borders = facets::bag_borders(call);
  const Tensor bags = facets::bag_of_entry(borders), terms = terms_of<Wide>(call, borders);
  const Tensor fourth = call.inputs.size() < 4 ? Tensor{}
                        : is_max(call)         ? to_contiguous(call[3])
                                               : facets::dense_as(call[3], dtype_of<Wide>);
  const facets::RowRuns runs(call[1], bag_attrs(call).vocab, bag_attrs(call).padding);
  facets::RowSums sums{.runs = runs, .terms = terms, .grain = token_grain(), .source_of = bags.data<int64_t>()};
  if (fourth.defined() && is_max(call)) sums.chosen = fourth.data<int64_t>();
  else if (fourth.defined()) sums.factors = fourth.raw_data();
  write(sums);
}

template <class Write>
void with_sums(const OpCall& call, const Tensor& out, Write write) {
  if (out.dtype() == DType::f64) with_sums<double>(call, write);
  else with_sums<float>(call, write);
}

// The sum for row `row`, column `d` over the ranges [r0, r1) of bags, halved; one chain in double inside of each.
struct Reference {
  const OpCall& call;
  std::vector<int64_t> borders = facets::bag_borders(call), rows = facets::dense_indices(call[1]),
                       lengths = facets::bag_lengths(call, borders);

  double operator()(int64_t row, int64_t d) const {
    const int64_t bags = static_cast<int64_t>(lengths.size()), ranges = (bags + token_grain() - 1) / token_grain();
    return ranges == 0 || row == bag_attrs(call).padding ? facets::kSumIdentity : sum(row, d, 0, ranges);
  }

  double sum(int64_t row, int64_t d, int64_t r0, int64_t r1) const {
    if (r1 - r0 > 1) {
      const int64_t middle = r0 + (r1 - r0 + 1) / 2;
      return sum(row, d, r0, middle) + sum(row, d, middle, r1);
    }
    double total = facets::kSumIdentity;
    const int64_t end = std::min(r1 * token_grain(), static_cast<int64_t>(lengths.size()));
    for (int64_t b = r0 * token_grain(); b < end; ++b) {
      for (int64_t p = borders[static_cast<size_t>(b)]; p < borders[static_cast<size_t>(b) + 1]; ++p) {
        if (rows[static_cast<size_t>(p)] == row) total += term(b, p, d);
      }
    }
    return total;
  }

  double term(int64_t b, int64_t p, int64_t d) const {
    const double g = facets::read_double(call[0], facets::offset_at(call[0], {b, d}));
    if (is_max(call))
      return facets::read_int64(call[3], facets::offset_at(call[3], {b, d})) == p ? g : facets::kSumIdentity;
    if (bag_attrs(call).mode == BagMode::mean) return g / static_cast<double>(lengths[static_cast<size_t>(b)]);
    return call.inputs.size() > 3 ? g * facets::read_double(call[3], facets::offset_at(call[3], {p})) : g;
  }
};

void reference_dense(const OpCall& call, std::span<const Tensor> outputs) {
  facets::check_bags(call);
  const Reference sum{call};
  facets::for_each_index(outputs[0].extents(), [&](const Extents& at) {
    facets::write_double(outputs[0], facets::offset_at(outputs[0], at), sum(at[0], at[1]));
  });
}

void reference_rows(const OpCall& call, std::span<const Tensor> outputs) {
  facets::check_bags(call);
  const Reference sum{call};
  facets::reference_row_outputs(sum.rows, bag_attrs(call).padding, outputs,
                                [&](int64_t row, int64_t d) { return sum(row, d); });
}

// What the cotangent `w` of the table gives the gradient: linear in it, so the bags of `w`; for max, its rows that were
// chosen.
void vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.grads[0].defined()) return;
  const BagAttrs& a = c.attrs.as<BagAttrs>();
  const Tensor& w = c.grads[0];
  if (a.mode != BagMode::max) {
    const BagOptions options{.mode = a.mode,
                             .padding_idx = a.padding,
                             .include_last_offset = a.include_last != 0,
                             .per_sample_weights = c.inputs.size() > 3 ? c.inputs[3] : Tensor{}};
    if (c.needs(0)) grads[0] = embedding_bag(w, c.inputs[1], c.inputs[2], options);
    if (c.inputs.size() > 3 && c.needs(3))
      grads[3] = embedding_bag_weights_backward(c.inputs[0], w, c.inputs[1], c.inputs[2], options);
    return;
  }
  if (!c.needs(0)) return;
  const Tensor& chosen = c.inputs[3];
  if (c.inputs[1].size(0) == 0) {
    grads[0] = full_beside(chosen, chosen.sizes(), 0.0, w.dtype());
    return;
  }
  const Tensor entries = reshape(clamp(chosen, {.min = 0}), {-1});
  const Tensor rows = reshape(index_select(c.inputs[1], 0, entries), chosen.sizes());
  grads[0] = masked_fill(gather(w, 0, rows), lt(chosen, 0), 0.0);
}

// `width`: the letter of the features.
std::string letters(const OpCall& call, char width) {
  const std::string fourth = call.inputs.size() < 4 ? "" : is_max(call) ? fmt::format(" #c[Z{}]", width) : " #s[P]";
  return fmt::format("[Z{}] #I[P] #O[Q]{} -> ", width, fourth);
}

std::vector<Sample> samples() {
  const auto indices = [](uint64_t seed, int64_t n, DType dtype) {
    return facets::sample_tensor(seed, {n}, dtype, 0, 7);
  };
  const auto attrs = [](BagMode mode, int64_t padding = kNoPadding, bool include_last = false, int64_t vocab = 9) {
    return Attrs::of(BagAttrs{vocab, padding, mode, include_last});
  };
  const Tensor grad = facets::sample_tensor(1, {4, 5}), offsets = Tensor::of<int64_t>({0, 3, 3, 8}),
               eleven = indices(2, 11, DType::i64);
  std::vector<int64_t> pairs(400), chosen(20);
  for (size_t b = 0; b < pairs.size(); ++b) pairs[b] = static_cast<int64_t>(2 * b);
  for (size_t i = 0; i < chosen.size(); ++i)
    chosen[i] = std::array<int64_t, 4>{0, -1, 3, 8}[i / 5] + (i / 5 == 1 ? 0 : static_cast<int64_t>(i % 3));
  return {{"sum", {grad, eleven, offsets}, attrs(BagMode::sum)},
          {"mean_padding", {grad, eleven, offsets}, attrs(BagMode::mean, 4)},
          {"weighted", {grad, eleven, offsets, facets::sample_tensor(3, {11})}, attrs(BagMode::sum, 2)},
          {"max", {grad, eleven, offsets, Tensor::of<int64_t>(chosen, {4, 5})}, attrs(BagMode::max)},
          {"many_ranges_i32",
           {facets::sample_tensor(4, {400, 3}), indices(5, 800, DType::i32), Tensor::of<int64_t>(pairs)},
           attrs(BagMode::sum)},
          {"bf16_last",
           {facets::sample_tensor(6, {2, 7}, DType::bf16), eleven, Tensor::of<int32_t>({0, 4, 11})},
           attrs(BagMode::sum, kNoPadding, true)},
          {"f64", {facets::sample_tensor(7, {4, 2}, DType::f64), eleven, offsets}, attrs(BagMode::mean)},
          {"no_entries",
           {facets::sample_tensor(8, {2, 3}), indices(9, 0, DType::i64), Tensor::of<int64_t>({0, 0})},
           attrs(BagMode::sum)}};
}

const OpDef kDense{.name = "embedding_bag_backward",
                   .num_inputs = -1,
                   .infer = infer_dense,
                   .reference = reference_dense,
                   .gradient = {.vjp = vjp, .saves_inputs = 0b1111},
                   .check = facets::check_bags,
                   // A kernel and not a recipe: which rows are added is in memory.
                   .kernel =
                       [](const OpCall& call, std::span<const Tensor> outputs) {
                         with_sums(call, outputs[0], [&](const facets::RowSums& sums) { sums.write_rows(outputs[0]); });
                       },
                   .sharding = [](const OpCall& call) { return fmt::format("G{}y[Vw] | | lin", letters(call, 'w')); },
                   .samples = samples};
const OpDef kRows{
    .name = "embedding_bag_row_gradients",
    .num_inputs = -1,
    .num_outputs = 3,
    .infer = infer_rows,
    .reference = reference_rows,
    .gradient = {.none = facets::kNoRowGradient},
    .check = facets::check_bags,
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          with_sums(call, outputs[0], [&](const facets::RowSums& sums) { facets::write_row_outputs(sums, outputs); });
        },
    .sharding = [](const OpCall& call) { return fmt::format("#G{}v[KW] #r[K] #c[]", letters(call, 'W')); },
    .samples = samples};

struct Inputs {
  std::vector<Tensor> list;
  Attrs attrs;
};
Inputs inputs_of(const char* where, const Tensor& grad, const Tensor& indices, const Tensor& offsets, int64_t vocab,
                 const BagOptions& o, const Tensor& chosen) {
  TUTTI_CHECK(vocab >= 0, "{}: a table of {} rows; expected 0 or more", where, vocab);
  TUTTI_CHECK(o.padding_idx == kNoPadding || (o.padding_idx >= 0 && o.padding_idx < vocab),
              "{}: padding_idx is {}; expected a row of a table of {}", where, o.padding_idx, vocab);
  Inputs inputs{{grad, indices, offsets}, Attrs::of(BagAttrs{vocab, o.padding_idx, o.mode, o.include_last_offset})};
  if (o.mode == BagMode::max) {
    TUTTI_CHECK(chosen.defined() && chosen.dtype() == DType::i64 && chosen.sizes() == grad.sizes(),
                "{}: for max it needs the chosen entries, i64 of the sizes of the gradient {}; got {}", where,
                describe(grad), chosen.defined() ? describe(chosen) : "none");
    inputs.list.push_back(chosen);
  } else if (o.per_sample_weights.defined()) {
    TUTTI_CHECK(o.mode == BagMode::sum && o.per_sample_weights.sizes() == indices.sizes(),
                "{}: per_sample_weights are for sums and have the sizes of the indices {}; got {}", where,
                describe(indices), describe(o.per_sample_weights));
    inputs.list.push_back(o.per_sample_weights);
  }
  return inputs;
}

}  // namespace

// The bag of each entry is how many bags behind the first begin at or before it: written with ops, to be captured.
static Tensor bags_of_entries(const Tensor& indices, const Tensor& offsets, bool include_last) {
  const SymInt bags = offsets.size(0) - (include_last ? 1 : 0), entries = indices.size(0);
  if (bags <= 1) return full_beside(indices, {entries}, 0, DType::i64);
  const Tensor counts = scatter_add(full_beside(indices, {entries + 1}, 0, DType::i64), 0,
                                    narrow(offsets, 0, 1, bags - 1), full_beside(indices, {bags - 1}, 1, DType::i64));
  return narrow(cumsum(counts, 0), 0, 0, entries);
}

Tensor embedding_bag_weights_backward(const Tensor& grad_BD, const Tensor& weight, const Tensor& indices,
                                      const Tensor& offsets, const BagOptions& options) {
  TUTTI_CHECK(options.mode == BagMode::sum, "embedding_bag_weights_backward: only sums have per_sample_weights");
  const DType dtype = compute_dtype(weight.dtype());
  const Tensor bags = bags_of_entries(indices, offsets, options.include_last_offset);
  const Tensor products =
      sum(mul(cast(embedding(weight, indices), dtype), cast(embedding(grad_BD, bags), dtype)), {.dims = {-1}});
  return options.padding_idx >= 0 ? masked_fill(products, eq(indices, options.padding_idx), 0.0) : products;
}

Tensor embedding_bag_backward(const Tensor& grad_BD, const Tensor& indices, const Tensor& offsets, int64_t vocab,
                              const BagOptions& options, const Tensor& chosen) {
  const Inputs inputs = inputs_of("embedding_bag_backward", grad_BD, indices, offsets, vocab, options, chosen);
  return apply1(kDense, inputs.list, inputs.attrs);
}

RowGradients embedding_bag_row_gradients(const Tensor& grad_BD, const Tensor& indices, const Tensor& offsets,
                                         int64_t vocab, const BagOptions& options, const Tensor& chosen) {
  const Inputs inputs = inputs_of("embedding_bag_row_gradients", grad_BD, indices, offsets, vocab, options, chosen);
  Tensor outputs[3];
  apply(kRows, inputs.list, inputs.attrs, outputs);
  return {.rows = outputs[1], .values = outputs[0], .count = outputs[2]};
}

}  // namespace tutti

TUTTI_OPS(embedding_bag_backward, &kDense, &kRows)
