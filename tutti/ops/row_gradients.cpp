#include "tutti/ops/row_gradients.h"

#include <limits>

#include "tutti/ops/cat.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/ops/indexing/row_outputs.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/sum_to.h"

namespace tutti {
namespace {

constexpr int64_t kOneRange = std::numeric_limits<int64_t>::max();

struct RowAttrs {
  int64_t vocab, padding;
  int64_t grain = 0;  // tokens of a range; 0: token_grain()

  int64_t range() const { return grain > 0 ? grain : token_grain(); }
  static constexpr auto fields() {
    return field_list(field::number<&RowAttrs::vocab>("vocab"), field::number<&RowAttrs::padding>("padding"),
                      field::number<&RowAttrs::grain>("grain"));
  }
};
const RowAttrs& attrs_of(const OpCall& call) { return call.attrs.as<RowAttrs>(); }

void infer(const OpCall& call, OutputMetas& out) {
  const Tensor &grad = call[0], &indices = call[1];
  facets::check_index_dtype("embedding_row_gradients", indices);
  TUTTI_CHECK(is_floating(grad.dtype()), "embedding_row_gradients: the gradient is {}; expected a float dtype",
              describe(grad));
  Shape tokens = grad.sizes();
  if (!tokens.empty()) tokens.pop_back();
  TUTTI_CHECK(grad.ndim() > 0 && tokens == indices.sizes(),
              "embedding_row_gradients: the gradient {} must have the sizes of the indices {} and one more dim",
              describe(grad), describe(indices));
  facets::infer_row_outputs(out, compute_dtype(grad.dtype()), numel_of(indices.sizes()), attrs_of(call).vocab,
                            grad.sizes().back());
}

void check(const OpCall& call) {
  const int64_t vocab = attrs_of(call).vocab;
  if (attrs_of(call).grain != kOneRange) {
    facets::check_index_range("embedding_row_gradients", call[1], vocab, "rows of the vocabulary");
    return;
  }
  // The rows of sparse gradients: -1 stands for none.
  for (const int64_t row : facets::dense_indices(call[1]))
    TUTTI_CHECK(row >= -1 && row < vocab, "add_row_gradients: a gradient of row {}; the table has {} rows", row, vocab);
}

// A kernel and not a recipe: which rows are added is in memory.
void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const RowAttrs& a = attrs_of(call);
  const facets::RowRuns runs(call[1], a.vocab, a.padding);
  facets::write_row_outputs({.runs = runs, .terms = facets::term_rows(call[0]), .grain = a.range()}, outputs);
}

// Ranges of `grain` tokens, halved; one chain in double inside of each.
double reference_sum(const Tensor& grad, const std::vector<int64_t>& rows, int64_t grain, int64_t row, int64_t d,
                     int64_t r0, int64_t r1) {
  if (r1 - r0 > 1) {
    const int64_t middle = r0 + (r1 - r0 + 1) / 2;
    return reference_sum(grad, rows, grain, row, d, r0, middle) + reference_sum(grad, rows, grain, row, d, middle, r1);
  }
  double sum = facets::kSumIdentity;
  const int64_t n = static_cast<int64_t>(rows.size()), end = r1 > n / grain ? n : r1 * grain;
  for (int64_t i = r0 * grain; i < end; ++i) {
    if (rows[static_cast<size_t>(i)] == row) sum += facets::read_double(grad, i * grad.extents()[1] + d);
  }
  return sum;
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  check(call);
  const std::vector<int64_t> rows = facets::dense_indices(call[1]);
  const Tensor grad = facets::term_rows(call[0]);
  const int64_t n = static_cast<int64_t>(rows.size()),
                grain = std::min(attrs_of(call).range(), std::max<int64_t>(n, 1));
  const int64_t ranges = (n + grain - 1) / grain;
  facets::reference_row_outputs(rows, attrs_of(call).padding, outputs, [&](int64_t row, int64_t d) {
    return reference_sum(grad, rows, grain, row, d, 0, ranges);
  });
}

const OpDef kRowGradients{
    .name = "embedding_row_gradients",
    .num_inputs = 2,
    .num_outputs = 3,
    .infer = infer,
    .reference = reference,
    .gradient = {.none = facets::kNoRowGradient},
    .check = check,
    .kernel = kernel,
    .sharding =
        [](const OpCall& call) {
          const std::string tokens = facets::dim_letters(call[1].ndim(), ~0u);
          return fmt::format("#G[{0}W] #I[{0}] -> v[YW] #r[Y] #c[]", tokens);
        },
    .samples =
        [] {
          const auto indices = [](uint64_t seed, const Extents& sizes, double end, DType dtype) {
            return facets::sample_tensor(seed, sizes, dtype, 0, end);
          };
          const Attrs seven = Attrs::of(RowAttrs{7, kNoPadding});
          return std::vector<Sample>{
              {"tokens", {facets::sample_tensor(1, {2, 9, 5}), indices(2, {2, 9}, 7, DType::i64)}, seven},
              {"many_rows",
               {facets::sample_tensor(3, {300, 3}), indices(4, {300}, 100000, DType::i32)},
               Attrs::of(RowAttrs{100000, kNoPadding})},
              {"padding",
               {facets::sample_tensor(5, {31, 4}, DType::bf16), indices(6, {31}, 7, DType::i64)},
               Attrs::of(RowAttrs{7, 2})},
              {"chain",
               {facets::sample_tensor(5, {31, 4}), indices(6, {31}, 7, DType::i64)},
               Attrs::of(RowAttrs{7, -1, kOneRange})},
              {"f64_one", {facets::sample_tensor(7, {4}, DType::f64), indices(8, {}, 7, DType::i64)}, seven},
              {"none", {facets::sample_tensor(9, {0, 4}), indices(10, {0}, 7, DType::i64)}, seven}};
        },
};

RowGradients call_rows(const Tensor& grad, const Tensor& indices, const RowAttrs& attrs) {
  const Tensor inputs[] = {grad, indices};
  Tensor outputs[3];
  apply(kRowGradients, inputs, Attrs::of(attrs), outputs);
  return {.rows = outputs[1], .values = outputs[0], .count = outputs[2]};
}

}  // namespace

RowGradients RowGradients::trimmed() const {
  const int64_t n = count.item_int();
  return {narrow(rows, 0, 0, n), narrow(values, 0, 0, n), count};
}

RowGradients embedding_row_gradients(const Tensor& grad, const Tensor& indices, int64_t vocab, int64_t padding_idx) {
  TUTTI_CHECK(vocab >= 0, "embedding_row_gradients: a vocabulary of {} rows; expected 0 or more", vocab);
  TUTTI_CHECK(padding_idx == kNoPadding || (padding_idx >= 0 && padding_idx < vocab),
              "embedding_row_gradients: padding_idx is {}; expected a row of a vocabulary of {}", padding_idx, vocab);
  return call_rows(grad, indices, {vocab, padding_idx});
}

RowGradients add_row_gradients(std::span<const RowGradients> uses, int64_t vocab) {
  TUTTI_CHECK(!uses.empty(), "add_row_gradients: there are none to add");
  std::vector<Tensor> rows, values;
  for (const RowGradients& use : uses) {
    rows.push_back(use.rows);
    values.push_back(use.values);
  }
  if (uses.size() == 1) return uses[0];
  // Entries without a row hold -1, which is left out; one range, so that a row is one chain of its uses.
  return call_rows(cat(values, 0), cat(rows, 0), {vocab, -1, kOneRange});
}

}  // namespace tutti

TUTTI_OPS(row_gradients, &kRowGradients)
