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
#include "tutti/ops/gather.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"

namespace tutti::layouts {
namespace {

// The sum over tp of f32 partial values, for this rank's tokens.
Tensor reduced(const Place& place, Tensor partial) {
  if (place.layout.rounds_partial_sums) partial = cast(cast(partial, DType::bf16), DType::f32);
  return place.layout.sequence ? place.tp.reduce_scatter(partial, place.sequence_begins) : place.tp.all_reduce(partial);
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
  return function(
      "row_parallel", {x_TF, w_DF},
      [&] { return cast(reduced(place, matmul(x_TF, transpose(w_DF, 0, 1), {.out_dtype = DType::f32})), x_TF.dtype()); },
      [&place, x = detach(x_TF), w = detach(w_DF)](const Tensor& g) -> std::vector<Tensor> {
        const Tensor g_all = all_tokens(place, g);
        return {matmul(g_all, w, {.out_dtype = x.dtype()}), weight_gradient(g_all, x)};
      });
}

Tensor vocabulary_parallel_embedding(const Place& place, const Tensor& table_VD, const std::vector<int32_t>& tokens, const TreeCut& part) {
  // Tokens of other ranks look up one more row, the identity of the sum.
  std::vector<int32_t> rows;
  for (const int32_t token : tokens)
    rows.push_back(static_cast<int32_t>(token >= part.begin && token < part.end ? token - part.begin : part.size()));
  const Tensor index = Tensor::of(rows);
  return function(
      "vocabulary_parallel_embedding", {table_VD},
      [&] {
        const Tensor identity = full({1, table_VD.size(1)}, -0.0, table_VD.dtype());
        const Tensor found = embedding(cat({detach(table_VD), identity}, 0), index);
        return cast(reduced(place, cast(found, DType::f32)), table_VD.dtype());
      },
      [&place, index, rows = part.size()](const Tensor& g) -> std::vector<Tensor> {
        return {narrow(embedding_backward(all_tokens(place, g), index, rows + 1), 0, 0, rows)};
      });
}

Tensor vocabulary_parallel_loss(const Place& place, const Tensor& logits_TV, const std::vector<int32_t>& labels, const TreeCut& part) {
  const Tensor targets = Tensor::of(labels);
  ClassStatistics all;
  {
    const NoGradScope no_grad;
    const ClassStatistics mine = class_statistics(detach(logits_TV), targets, part.begin);
    std::vector<ClassStatistics> nodes;
    for (const Tensor& packed : place.tp.gather_each(stack({mine.maximum, mine.rest, mine.target}, 0)))
      nodes.push_back({contiguous(select(packed, 0, 0)), contiguous(select(packed, 0, 1)), contiguous(select(packed, 0, 2))});
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
  std::vector<int64_t> natural(positions.size()), begins;
  for (size_t i = 0; i < positions.size(); ++i) natural[static_cast<size_t>(positions[i])] = static_cast<int64_t>(i);
  const int64_t all = static_cast<int64_t>(positions.size()), mine = q_THE.extent(0);
  for (int r = 0; r <= place.cp.size(); ++r) begins.push_back(r * mine);
  const auto batched = [](const Tensor& t) { return reshape(t, {1, t.size(0), t.size(1), t.size(2)}); };
  const auto rows = [](const Tensor& t) { return reshape(t, {t.size(1), t.size(2), t.size(3)}); };
  // Keys of all ranks in the order of their positions.
  const auto keys = [&](const Tensor& t) { return batched(index_select(place.cp.all_gather(detach(t)), 0, index_tensor(natural))); };
  std::vector<int32_t> last;
  for (int64_t i = place.context_part.begin; i < place.context_part.end; ++i) last.push_back(static_cast<int32_t>(positions[static_cast<size_t>(i)]));
  const SdpaOptions options{.last_key = Tensor::of(last, {1, mine})};
  TUTTI_CHECK_EQ(all, mine * place.cp.size(), "context parallel attention: tokens");

  Tensor q, k, v;
  SdpaResult result;
  {
    const NoGradScope no_grad;
    q = batched(detach(q_THE));
    k = keys(k_TKE);
    v = keys(v_TKE);
    result = sdpa_with_logsumexp(q, k, v, options);
  }
  return function(
      "context_parallel_attention", {q_THE, k_TKE, v_TKE}, [&] { return rows(result.output); },
      [=, &place](const Tensor& g) -> std::vector<Tensor> {
        const SdpaGradients d = sdpa_partial_backward(batched(g), q, k, v, result, options);
        const auto own = [&](const Tensor& partial) {
          const Tensor canonical = index_select(rows(partial), 0, index_tensor(positions));
          return cast(place.cp.reduce_scatter(canonical, begins), k.dtype());
        };
        return {cast(rows(d.q), q.dtype()), own(d.k), own(d.v)};
      });
}

}  // namespace tutti::layouts
