#include "tutti/ops/embedding.h"

#include <algorithm>
#include <bit>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/engine/indices.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

// ---- embedding ------------------------------------------------------------------------------------------------------

void infer_embedding(const OpCall& call, OutputMetas& out) {
  const Tensor &weight = call[0], &indices = call[1];
  facets::check_index_dtype("embedding", indices);
  TUTTI_CHECK(weight.ndim() == 2, "embedding: the weight is {}; expected two dims, [vocabulary, features]", describe(weight));
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
                       if (c.needs(0)) grads[0] = embedding_backward(c.grads[0], c.inputs[1], c.input_metas[0].sizes[0].value());
                     },
                 .saves_inputs = 0b10},
    .recipe = {.build = [](RecipeBuilder& b) { b.out(b.in(0)); },
               .pick = [](const OpCall&) { return Pick{.index = 1, .dim = 0, .loops = Pick::Loops::spliced, .read = 0}; },
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
          return std::vector<Sample>{
              {"tokens", {weight, indices(2, {2, 9}, DType::i64)}, {}},
              {"i32_bf16", {facets::sample_tensor(3, {7, 16}, DType::bf16), indices(4, {3, 1, 4}, DType::i32)}, {}},
              {"one", {weight, indices(5, {}, DType::i64)}, {}},
              {"none", {weight, indices(6, {0}, DType::i64)}, {}},
              {"transposed_weight", {facets::sample_tensor(7, {5, 7}).view_as({7, 5}, {1, 7}, 0), indices(8, {6}, DType::i64)}, {}}};
        },
    .tolerance = {.f32 = 0, .f64 = 0},
};

// ---- embedding_backward ---------------------------------------------------------------------------------------------

struct VocabAttrs {
  int64_t vocab;
};

void infer_backward(const OpCall& call, OutputMetas& out) {
  const Tensor &grad = call[0], &indices = call[1];
  facets::check_index_dtype("embedding_backward", indices);
  TUTTI_CHECK(is_floating(grad.dtype()), "embedding_backward: the gradient is {}; expected a float dtype", describe(grad));
  Shape tokens = grad.sizes();
  if (!tokens.empty()) tokens.pop_back();
  TUTTI_CHECK(grad.ndim() > 0 && tokens == indices.sizes(),
              "embedding_backward: the gradient {} must have the sizes of the indices {} and one more dim", describe(grad),
              describe(indices));
  out.add(compute_dtype(grad.dtype()), {call.attrs.as<VocabAttrs>().vocab, grad.sizes().back()});
}

void check_vocabulary(const OpCall& call) {
  const int64_t vocab = call.attrs.as<VocabAttrs>().vocab;
  facets::check_index_range("embedding_backward", call[1], vocab, "rows of the vocabulary");
}

// Token positions by row, ascending: those of row v are positions[begin[v] .. begin[v + 1]).
struct TokensByRow {
  std::vector<int64_t> begin, positions;

  TokensByRow(const std::vector<int64_t>& rows, int64_t vocab)
      : begin(static_cast<size_t>(vocab) + 1, 0), positions(rows.size()) {
    for (const int64_t row : rows) ++begin[static_cast<size_t>(row) + 1];
    for (size_t v = 1; v < begin.size(); ++v) begin[v] += begin[v - 1];
    std::vector<int64_t> next(begin.begin(), begin.end() - 1);
    for (size_t i = 0; i < rows.size(); ++i) positions[static_cast<size_t>(next[static_cast<size_t>(rows[i])]++)] = static_cast<int64_t>(i);
  }
};

// The columns [column, column + width) of one row's sum.
template <class Grad, class Sum>
struct RowSum {
  const Grad* grad;  // [tokens, features]
  int64_t features, column, width, grain;

  static Sum widen(Grad g) {
    if constexpr (std::is_arithmetic_v<Grad>) return g;
    else return to_float(g);
  }

  // The tokens [first, last), at least one, all in the ranges [r0, r1), summed to `out`. `scratch` has `width` elements
  // for each level of the tree below.
  void operator()(const int64_t* first, const int64_t* last, int64_t r0, int64_t r1, Sum* out, Sum* scratch) const {
    while (r1 - r0 > 1) {
      const int64_t middle = r0 + (r1 - r0 + 1) / 2;
      const int64_t* split = std::lower_bound(first, last, middle * grain);
      if (split == last) r1 = middle;
      else if (split == first) r0 = middle;
      else {
        (*this)(first, split, r0, middle, out, scratch);
        (*this)(split, last, middle, r1, scratch, scratch + width);
        for (int64_t d = 0; d < width; ++d) out[d] += scratch[d];
        return;
      }
    }
    const Grad* row = grad + *first * features + column;
    for (int64_t d = 0; d < width; ++d) out[d] = widen(row[d]);
    while (++first != last) {
      row = grad + *first * features + column;
      for (int64_t d = 0; d < width; ++d) out[d] += widen(row[d]);
    }
  }
};

// A kernel and not a recipe: which rows are added is in memory. Threads take blocks of rows and columns, so that a
// vocabulary of few, frequent rows keeps them all busy.
template <class Grad, class Sum>
void sum_rows(const Tensor& out, const Tensor& grad, const std::vector<int64_t>& rows) {
  constexpr int64_t kRows = 64, kColumns = 128;
  const int64_t vocab = out.extents()[0], features = out.extents()[1], tokens = static_cast<int64_t>(rows.size());
  if (out.numel() == 0) return;
  const TokensByRow by_row(rows, vocab);
  const int64_t grain = token_grain(), ranges = (tokens + grain - 1) / grain;
  const size_t levels = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(ranges))) + 1;
  const int64_t row_blocks = (vocab + kRows - 1) / kRows, column_blocks = (features + kColumns - 1) / kColumns;
  const int64_t blocks = row_blocks * column_blocks, work = (vocab + tokens) * features / blocks + 1;
  ThreadPool::current().parallel_for(blocks, std::max<int64_t>(kParallelGrain / work, 1), [&](int64_t begin, int64_t end) {
    std::vector<Sum> scratch(levels * kColumns);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t column = block / row_blocks * kColumns, width = std::min(kColumns, features - column);
      const RowSum<Grad, Sum> sum{static_cast<const Grad*>(grad.raw_data()), features, column, width, grain};
      const int64_t first_row = block % row_blocks * kRows, last_row = std::min(first_row + kRows, vocab);
      for (int64_t v = first_row; v < last_row; ++v) {
        Sum* target = static_cast<Sum*>(out.raw_data()) + v * features + column;
        const int64_t* first = by_row.positions.data() + by_row.begin[static_cast<size_t>(v)];
        const int64_t* last = by_row.positions.data() + by_row.begin[static_cast<size_t>(v) + 1];
        if (first == last) std::fill(target, target + width, static_cast<Sum>(facets::kSumIdentity));
        else sum(first, last, 0, ranges, target, scratch.data());
      }
    }
  });
}

void backward_kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const std::vector<int64_t> rows = facets::dense_indices(call[1]);
  const Tensor grad = to_contiguous(call[0]);
  visit_dtype(grad.dtype(), [&]<class Grad>() {
    if constexpr (std::is_same_v<Grad, double>) sum_rows<double, double>(outputs[0], grad, rows);
    else if constexpr (!std::is_integral_v<Grad>) sum_rows<Grad, float>(outputs[0], grad, rows);
  });
}

// The sum of the gradients of row `row`, column `d`, over the token ranges [r0, r1), as a recursion over all ranges.
double reference_tree(const Tensor& grad, const std::vector<int64_t>& rows, int64_t row, int64_t d, int64_t r0, int64_t r1) {
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
    const double sum = ranges == 0 ? facets::kSumIdentity : reference_tree(grad, rows, at[0], at[1], 0, ranges);
    facets::write_double(outputs[0], facets::offset_at(outputs[0], at), sum);
  });
}

const OpDef kEmbeddingBackward{
    .name = "embedding_backward",
    .num_inputs = 2,
    .infer = infer_backward,
    .reference = backward_reference,
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       if (c.needs(0)) grads[0] = embedding(c.grads[0], c.inputs[1]);
                     },
                 .saves_inputs = 0b10},
    .check = check_vocabulary,
    .kernel = backward_kernel,
    .sharding =
        [](const OpCall& call) {
          const std::string tokens = facets::dim_letters(call[1].ndim());
          return fmt::format("G[{0}w] #I[{0}] -> W[Vw] | {1} | lin", tokens, tokens.empty() ? "" : "sum{" + tokens + "}");
        },
    .samples =
        [] {
          const auto indices = [](uint64_t seed, const Extents& sizes, DType dtype) {
            return facets::sample_tensor(seed, sizes, dtype, 0, 7);
          };
          const Attrs vocab = Attrs::of(VocabAttrs{9});
          return std::vector<Sample>{
              {"tokens", {facets::sample_tensor(1, {2, 9, 5}), indices(2, {2, 9}, DType::i64)}, vocab},
              {"many_ranges", {facets::sample_tensor(3, {700, 3}), indices(4, {700}, DType::i32)}, vocab},
              {"bf16", {facets::sample_tensor(5, {31, 17}, DType::bf16), indices(6, {31}, DType::i64)}, vocab},
              {"f64_one", {facets::sample_tensor(7, {4}, DType::f64), indices(8, {}, DType::i64)}, vocab},
              {"none", {facets::sample_tensor(9, {0, 4}), indices(10, {0}, DType::i64)}, vocab}};
        },
};

}  // namespace

Tensor embedding(const Tensor& weight, const Tensor& indices) { return call_op(kEmbedding, {}, weight, indices); }

Tensor embedding_backward(const Tensor& grad, const Tensor& indices, int64_t vocab) {
  TUTTI_CHECK(vocab >= 0, "embedding_backward: a vocabulary of {} rows; expected 0 or more", vocab);
  return call_op(kEmbeddingBackward, Attrs::of(VocabAttrs{vocab}), grad, indices);
}

}  // namespace tutti

TUTTI_OPS(embedding, &kEmbedding, &kEmbeddingBackward)
