#include "tests/layouts/support/parallel_ops.h"

#include "tests/layouts/support/function.h"
#include "tests/layouts/support/moe.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/cross_entropy_shard.h"
#include "tutti/ops/embedding.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"

namespace tutti::layouts {
namespace {

// The sum over tp of f32 partial values, for this rank's tokens; without history.
Tensor reduced(const Place& place, Tensor partial) {
  if (place.layout.rounds_partial_sums) partial = cast(cast(partial, DType::bf16), DType::f32);
  return place.layout.sequence ? place.tp.reduce_scatter(partial) : place.tp.all_reduce(partial);
}

// The same, rounded to `dtype`. All ranks of tp have one loss and so one cotangent, which a functional all_reduce would
// add up.
Tensor summed_over_tp(const Place& place, const Tensor& partial, DType dtype) {
  return function(
      "summed_over_tp", {partial}, [&] { return cast(reduced(place, detach(partial)), dtype); },
      [&place](const Tensor& g) -> std::vector<Tensor> { return {all_tokens(place, g)}; });
}

// f32 [out, in]: grad^T x over tokens.
Tensor weight_gradient(const Tensor& grad, const Tensor& x) {
  return matmul(transpose(grad, 0, 1), x, {.out_dtype = DType::f32, .axis = ContractionAxis::tokens});
}

}  // namespace

Tensor all_tokens(const Place& place, const Tensor& x_TD) {
  const NoGradScope no_grad;
  return place.layout.sequence ? place.tp.all_gather(detach(x_TD)) : detach(x_TD);
}

Tensor column_parallel(const Place& place, const Tensor& x_TD, const Tensor& x_all, const Tensor& w_FD, DType out) {
  return function(
      "column_parallel", {x_TD, w_FD}, [&] { return matmul(x_all, transpose(w_FD, 0, 1), {.out_dtype = out}); },
      [&place, x_all, w = detach(w_FD)](const Tensor& g) -> std::vector<Tensor> {
        const Tensor partial = matmul(g, w, {.out_dtype = DType::f32});
        return {cast(reduced(place, partial), x_all.dtype()), weight_gradient(g, x_all)};
      });
}

Tensor row_parallel(const Place& place, const Tensor& x_TF, const Tensor& w_DF) {
  return summed_over_tp(place, matmul(x_TF, transpose(w_DF, 0, 1), {.out_dtype = DType::f32}), x_TF.dtype());
}

Tensor vocabulary_parallel_embedding(const Place& place, const Tensor& table_VD, const std::vector<int32_t>& tokens,
                                     const TreeCut& part) {
  // Tokens of other ranks look up one more row, the identity of the sum.
  std::vector<int32_t> rows;
  for (const int32_t token : tokens)
    rows.push_back(static_cast<int32_t>(token >= part.begin && token < part.end ? token - part.begin : part.size()));
  const Tensor identity = full({1, table_VD.size(1)}, -0.0, table_VD.dtype());
  const Tensor found = embedding(cat({table_VD, identity}, 0), Tensor::of(rows));
  return summed_over_tp(place, cast(found, DType::f32), table_VD.dtype());
}

Tensor vocabulary_parallel_loss(const Place& place, const Tensor& logits_TV, const std::vector<int32_t>& labels,
                                const TreeCut& part) {
  const Tensor targets = Tensor::of(labels);
  ClassStatistics all;
  {
    const NoGradScope no_grad;
    const ClassStatistics mine = class_statistics(detach(logits_TV), targets, part.begin);
    std::vector<ClassStatistics> nodes;
    for (const Tensor& packed : place.tp.gather_each(stack({mine.maximum, mine.rest, mine.target}, 0)))
      nodes.push_back(
          {contiguous(select(packed, 0, 0)), contiguous(select(packed, 0, 1)), contiguous(select(packed, 0, 2))});
    for (; nodes.size() > 1; nodes.resize(nodes.size() / 2)) {
      for (size_t i = 0; i < nodes.size() / 2; ++i) nodes[i] = combine(nodes[2 * i], nodes[2 * i + 1]);
    }
    all = nodes[0];
  }
  return function(
      "vocabulary_parallel_loss", {logits_TV}, [&] { return cross_entropy_of(all, targets); },
      [logits = detach(logits_TV), targets, all, first = part.begin](const Tensor& g) -> std::vector<Tensor> {
        return {cross_entropy_shard_backward(logits, g, targets, all, first)};
      });
}

Tensor context_parallel_attention(const Place& place, const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE,
                                  const std::vector<int64_t>& positions) {
  const int64_t all = static_cast<int64_t>(positions.size()), mine = q_THE.extent(0);
  TUTTI_CHECK_EQ(all, mine * place.cp.size(), "context parallel attention: tokens");
  std::vector<int64_t> natural(positions.size());
  for (size_t i = 0; i < positions.size(); ++i) natural[static_cast<size_t>(positions[i])] = static_cast<int64_t>(i);
  const auto batched = [](const Tensor& t) { return reshape(t, {1, t.size(0), t.size(1), t.size(2)}); };
  const auto rows = [](const Tensor& t) { return reshape(t, {t.size(1), t.size(2), t.size(3)}); };
  // Keys of all ranks in the order of their positions. Their gradients are f32 until the ranks have added them.
  const auto keys = [&](const Tensor& t) {
    return permuted_rows(place.cp.all_gather(with_rounded_cotangent(t)), natural);
  };
  std::vector<int32_t> last;
  for (int64_t i = place.context_part.begin; i < place.context_part.end; ++i)
    last.push_back(static_cast<int32_t>(positions[static_cast<size_t>(i)]));
  const SdpaOptions options{.last_key = Tensor::of(last, {1, mine})};

  const Tensor k_all = keys(k_TKE), v_all = keys(v_TKE);
  const Tensor q = batched(detach(q_THE)), k = batched(detach(k_all)), v = batched(detach(v_all));
  const SdpaResult result = sdpa_with_logsumexp(q, k, v, options);
  return function(
      "context_parallel_attention", {q_THE, k_all, v_all}, [&] { return rows(result.output); },
      [=](const Tensor& g) -> std::vector<Tensor> {
        const SdpaGradients d = sdpa_partial_backward(batched(g), q, k, v, result, options);
        return {cast(rows(d.q), q.dtype()), rows(d.k), rows(d.v)};
      });
}

}  // namespace tutti::layouts
