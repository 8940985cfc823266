#include "tutti/nn/embedding.h"

#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/embedding_bag_backward.h"
#include "tutti/ops/quantized_embedding.h"
#include "tutti/ops/reshape.h"

namespace tutti::nn {

Table::Table(int64_t rows, int64_t columns, const EmbeddingOptions& options) : options_(options) {
  TUTTI_CHECK(rows >= 0 && columns >= 0, "Embedding: a table of {} rows and {} columns; expected 0 or more of each",
              rows, columns);
  TUTTI_CHECK(options.padding_idx == kNoPadding || (options.padding_idx >= 0 && options.padding_idx < rows),
              "Embedding: padding_idx is {}; expected a row of a table of {}", options.padding_idx, rows);
  weight = register_parameter("weight", {rows, columns}, options.init);
}

Tensor Table::table() const { return options_.sparse ? detach(weight.use()) : weight.use(); }

Tensor Table::end_of_backward(const Tensor& found, Lookup lookup) const {
  if (!options_.sparse || !is_grad_enabled()) return found;
  if (!requires_grad(found))
    tutti::requires_grad_(found);  // it has no history: all it depends on is the detached table
  const auto kept = std::make_shared<Lookup>(std::move(lookup));
  register_hook(found, [kept](const Tensor& cotangent) {
    kept->grad = kept->grad.defined() ? add(kept->grad, cotangent) : cotangent;
    return Tensor{};
  });
  lookups_.push_back(kept);
  return found;
}

RowGradients Table::take_row_gradients() {
  TUTTI_CHECK(
      options_.sparse,
      "take_row_gradients: the table is not sparse; its gradient is weight.grad(), or set EmbeddingOptions::sparse");
  NoGradScope no_grad;
  const int64_t rows = weight.sizes()[0];
  std::vector<RowGradients> uses;
  for (const auto& use : std::exchange(lookups_, {})) {
    if (!use->grad.defined()) continue;
    if (!use->offsets.defined())
      uses.push_back(embedding_row_gradients(use->grad, use->indices, rows, options_.padding_idx));
    else
      uses.push_back(embedding_bag_row_gradients(use->grad, use->indices, use->offsets, rows, use->bag, use->chosen));
  }
  TUTTI_CHECK(!uses.empty(), "take_row_gradients: backward() reached no lookup since the last call");
  return add_row_gradients(uses, rows);
}

Tensor Embedding::forward(const Tensor& indices) const {
  if (weight.holds_blocks())
    return quantized_embedding(weight.blocks(), indices, weight.block_format(), weight.use_dtype());
  return end_of_backward(embedding(table(), indices, options_.padding_idx), {.indices = indices});
}

Tensor EmbeddingBag::forward(const Tensor& indices, const Tensor& offsets, const Tensor& per_sample_weights) const {
  const BagOptions bag{.mode = mode_,
                       .padding_idx = options_.padding_idx,
                       .include_last_offset = include_last_offset_,
                       .per_sample_weights = per_sample_weights};
  const BagResult result = embedding_bag_with_entries(table(), indices, offsets, bag);
  return end_of_backward(result.pooled, {.indices = indices, .offsets = offsets, .bag = bag, .chosen = result.chosen});
}

Tensor EmbeddingBag::forward(const Tensor& indices_BL) const {
  TUTTI_CHECK(indices_BL.ndim() == 2, "EmbeddingBag: without offsets the indices are [bags, length]; got {}",
              describe(indices_BL));
  const int64_t last = include_last_offset_ ? 1 : 0;
  const Tensor offsets =
      beside(indices_BL, mul(arange(indices_BL.size(0) + last), Scalar(indices_BL.size(1).guard_int())));
  return forward(reshape(indices_BL, {-1}), offsets);
}

}  // namespace tutti::nn
