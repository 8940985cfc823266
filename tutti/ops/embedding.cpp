#include "tutti/ops/embedding.h"

#include <algorithm>

#include "tutti/ops/binary.h"
#include "tutti/ops/bitwise.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/ops/indexing/row_sums.h"
#include "tutti/ops/squeeze.h"
#include "tutti/ops/sum_to.h"
#include "tutti/ops/where.h"

namespace tutti {
namespace {

// ---- embedding ------------------------------------------------------------------------------------------------------

struct EmbeddingAttrs {
  int64_t padding = kNoPadding;  // the row that takes no gradient
  static constexpr auto fields() { return field_list(field::number<&EmbeddingAttrs::padding>("padding")); }
};

void infer_embedding(const OpCall& call, OutputMetas& out) {
  const Tensor &weight = call[0], &indices = call[1];
  facets::check_index_dtype("embedding", indices);
  TUTTI_CHECK(weight.ndim() == 2, "embedding: the weight is {}; expected two dims, [vocabulary, features]",
              describe(weight));
  Shape sizes = indices.sizes();
  sizes.push_back(weight.sizes()[1]);
  out.add(weight.dtype(), sizes);
}

void check_rows(const OpCall& call) {
  facets::check_index_range("embedding", call[1], call[0].extents()[0],
                            fmt::format("rows of the weight {}", describe(call[0])));
}

const OpDef kEmbedding{
    .name = "embedding",
    .num_inputs = 2,
    .infer = infer_embedding,
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          check_rows(call);
          facets::for_each_index(outputs[0].extents(), [&](const Extents& at) {
            Extents token = at;
            token.pop_back();
            const int64_t row = facets::read_int64(call[1], facets::offset_at(call[1], token));
            facets::move_element(outputs[0], at, call[0], {row, at.back()});
          });
        },
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       if (!c.needs(0)) return;
                       grads[0] = embedding_backward(c.grads[0], c.inputs[1], c.input_metas[0].sizes[0].value(),
                                                     c.attrs.as<EmbeddingAttrs>().padding);
                     },
                 .saves_inputs = 0b10},
    .recipe = {.build = [](RecipeBuilder& b) { b.out(b.in(0)); },
               .pick =
                   [](const OpCall&) { return Pick{.index = 1, .dim = 0, .loops = Pick::Loops::spliced, .read = 0}; },
               .explain = check_rows,
               .moves_bits = true},
    .sharding =
        [](const OpCall& call) {
          return fmt::format("W[vw] #I[{0}] -> Y[{0}w] | mask{{v}} | id", facets::dim_letters(call[1].ndim()));
        },
    .samples =
        [] {
          const auto indices = [](uint64_t seed, const Extents& sizes, DType dtype) {
            return facets::sample_tensor(seed, sizes, dtype, 0, 7);
          };
          const Tensor weight = facets::sample_tensor(1, {7, 5});
          const Attrs plain = Attrs::of(EmbeddingAttrs{});
          return std::vector<Sample>{
              {"tokens", {weight, indices(2, {2, 9}, DType::i64)}, plain},
              {"i32_bf16", {facets::sample_tensor(3, {7, 16}, DType::bf16), indices(4, {3, 1, 4}, DType::i32)}, plain},
              {"one", {weight, indices(5, {}, DType::i64)}, plain},
              {"none", {weight, indices(6, {0}, DType::i64)}, plain},
              {"transposed_weight",
               {facets::sample_tensor(7, {5, 7}).view_as({7, 5}, {1, 7}, 0), indices(8, {6}, DType::i64)},
               plain}};
        },
    .tolerance = {.f32 = 0, .f64 = 0},
};

// ---- embedding_backward ---------------------------------------------------------------------------------------------

// The gradient of rows [first, first + rows) of the vocabulary.
struct BackwardAttrs {
  int64_t vocab;
  int64_t padding = kNoPadding;
  int64_t first = 0;
  int64_t rows = vocab;
  static constexpr auto fields() {
    return field_list(field::number<&BackwardAttrs::vocab>("vocab"), field::number<&BackwardAttrs::padding>("padding"),
                      field::number<&BackwardAttrs::first>("first"), field::number<&BackwardAttrs::rows>("rows"));
  }
};

void infer_backward(const OpCall& call, OutputMetas& out) {
  const Tensor &grad = call[0], &indices = call[1];
  facets::check_index_dtype("embedding_backward", indices);
  TUTTI_CHECK(is_floating(grad.dtype()), "embedding_backward: the gradient is {}; expected a float dtype",
              describe(grad));
  Shape tokens = grad.sizes();
  if (!tokens.empty()) tokens.pop_back();
  TUTTI_CHECK(grad.ndim() > 0 && tokens == indices.sizes(),
              "embedding_backward: the gradient {} must have the sizes of the indices {} and one more dim",
              describe(grad), describe(indices));
  const BackwardAttrs& a = call.attrs.as<BackwardAttrs>();
  TUTTI_CHECK(a.first >= 0 && a.rows >= 0 && a.first <= a.vocab - a.rows,
              "embedding_backward: {} rows from row {} on of a vocabulary of {}", a.rows, a.first, a.vocab);
  out.add(compute_dtype(grad.dtype()), {a.rows, grad.sizes().back()});
}

void check_vocabulary(const OpCall& call) {
  const int64_t vocab = call.attrs.as<BackwardAttrs>().vocab;
  facets::check_index_range("embedding_backward", call[1], vocab, "rows of the vocabulary");
}

// A kernel and not a recipe: which rows are added is in memory.
void backward_kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const BackwardAttrs& a = call.attrs.as<BackwardAttrs>();
  const facets::RowRuns runs(call[1], a.rows, a.padding, a.first);
  facets::RowSums{.runs = runs, .terms = facets::term_rows(call[0]), .grain = token_grain()}.write_rows(outputs[0]);
}

// The sum of the gradients of row `row`, column `d`, over the token ranges [r0, r1), as a recursion over all ranges.
double reference_tree(const Tensor& grad, const std::vector<int64_t>& rows, int64_t row, int64_t d, int64_t r0,
                      int64_t r1) {
  if (r1 - r0 > 1) {
    const int64_t middle = r0 + (r1 - r0 + 1) / 2;
    return reference_tree(grad, rows, row, d, r0, middle) + reference_tree(grad, rows, row, d, middle, r1);
  }
  double sum = facets::kSumIdentity;
  const int64_t grain = token_grain(), features = grad.extents().back();
  for (int64_t i = r0 * grain; i < std::min(r1 * grain, static_cast<int64_t>(rows.size())); ++i) {
    if (rows[static_cast<size_t>(i)] == row) sum += facets::read_double(grad, i * features + d);
  }
  return sum;
}

void backward_reference(const OpCall& call, std::span<const Tensor> outputs) {
  check_vocabulary(call);
  const std::vector<int64_t> rows = facets::dense_indices(call[1]);
  const Tensor grad = to_contiguous(call[0]);
  const int64_t ranges = (static_cast<int64_t>(rows.size()) + token_grain() - 1) / token_grain();
  facets::for_each_index(outputs[0].extents(), [&](const Extents& at) {
    const int64_t row = call.attrs.as<BackwardAttrs>().first + at[0];
    const bool none = ranges == 0 || row == call.attrs.as<BackwardAttrs>().padding;
    const double sum = none ? facets::kSumIdentity : reference_tree(grad, rows, row, at[1], 0, ranges);
    facets::write_double(outputs[0], facets::offset_at(outputs[0], at), sum);
  });
}

// Entries of other rows, and of the padding row, have taken no part.
void backward_vjp(const VjpCall& c, std::span<Tensor> grads) {
  if (!c.needs(0)) return;
  const BackwardAttrs& a = c.attrs.as<BackwardAttrs>();
  Tensor rows = c.inputs[1], left_out;
  if (a.padding >= 0) left_out = eq(rows, a.padding);
  if (a.rows < a.vocab) {
    const Tensor outside = bit_or(lt(rows, a.first), ge(rows, a.first + a.rows));
    left_out = left_out.defined() ? bit_or(left_out, outside) : outside;
    rows = masked_fill(sub(rows, a.first), outside, 0);
  }
  grads[0] = a.rows == 0 ? full_beside(c.grads[0], c.input_metas[0].sizes, facets::kSumIdentity, c.grads[0].dtype())
                         : embedding(c.grads[0], rows);
  if (left_out.defined()) grads[0] = masked_fill(grads[0], unsqueeze(left_out, -1), facets::kSumIdentity);
}

const OpDef kEmbeddingBackward{
    .name = "embedding_backward",
    .num_inputs = 2,
    .infer = infer_backward,
    .reference = backward_reference,
    .gradient = {.vjp = backward_vjp, .saves_inputs = 0b10},
    .check = check_vocabulary,
    .kernel = backward_kernel,
    .sharding =
        [](const OpCall& call) {
          const std::string tokens = facets::dim_letters(call[1].ndim());
          return fmt::format("G[{0}w] #I[{0}] -> W[vw] | {1} | lin", tokens,
                             tokens.empty() ? "" : "sum{" + tokens + "}");
        },
    .local_attrs =
        [](const OpCall& whole, const LocalBox& part) {
          BackwardAttrs a = whole.attrs.as<BackwardAttrs>();
          a.first += part.offsets[0];
          a.rows = part.sizes[0];
          return Attrs::of(a);
        },
    .samples =
        [] {
          const auto indices = [](uint64_t seed, const Extents& sizes, DType dtype) {
            return facets::sample_tensor(seed, sizes, dtype, 0, 7);
          };
          const Attrs vocab = Attrs::of(BackwardAttrs{9});
          return std::vector<Sample>{
              {"tokens", {facets::sample_tensor(1, {2, 9, 5}), indices(2, {2, 9}, DType::i64)}, vocab},
              {"padding",
               {facets::sample_tensor(11, {40, 6}), indices(12, {40}, DType::i64)},
               Attrs::of(BackwardAttrs{9, 3})},
              {"many_ranges", {facets::sample_tensor(3, {700, 3}), indices(4, {700}, DType::i32)}, vocab},
              {"bf16", {facets::sample_tensor(5, {31, 17}, DType::bf16), indices(6, {31}, DType::i64)}, vocab},
              {"some_rows",
               {facets::sample_tensor(13, {40, 6}), indices(14, {40}, DType::i32)},
               Attrs::of(BackwardAttrs{9, 3, 2, 4})},
              {"no_rows",
               {facets::sample_tensor(15, {8, 6}), indices(16, {8}, DType::i64)},
               Attrs::of(BackwardAttrs{9, kNoPadding, 9, 0})},
              {"f64_one", {facets::sample_tensor(7, {4}, DType::f64), indices(8, {}, DType::i64)}, vocab},
              {"none", {facets::sample_tensor(9, {0, 4}), indices(10, {0}, DType::i64)}, vocab}};
        },
};

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& indices, int64_t padding_idx) {
  TUTTI_CHECK(padding_idx == kNoPadding || (weight.ndim() == 2 && padding_idx >= 0 && weight.size(0) > padding_idx),
              "embedding: padding_idx is {}; expected a row of the weight {}", padding_idx, describe(weight));
  return call_op(kEmbedding, Attrs::of(EmbeddingAttrs{padding_idx}), weight, indices);
}

Tensor embedding_backward(const Tensor& grad, const Tensor& indices, int64_t vocab, int64_t padding_idx) {
  TUTTI_CHECK(vocab >= 0, "embedding_backward: a vocabulary of {} rows; expected 0 or more", vocab);
  TUTTI_CHECK(padding_idx == kNoPadding || (padding_idx >= 0 && padding_idx < vocab),
              "embedding_backward: padding_idx is {}; expected a row of a vocabulary of {}", padding_idx, vocab);
  return call_op(kEmbeddingBackward, Attrs::of(BackwardAttrs{vocab, padding_idx}), grad, indices);
}

}  // namespace tutti

TUTTI_OPS(embedding, &kEmbedding, &kEmbeddingBackward)
