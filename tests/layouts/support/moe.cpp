#include "tests/layouts/support/moe.h"

#include <numeric>

#include "tests/layouts/support/function.h"
#include "tests/layouts/support/meter.h"
#include "tutti/codegen/gemm/gemm.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/topk.h"

namespace tutti::layouts {
namespace {

// [T * active, D] -> [T, D]: slots added in order, in f32, rounded once.
Tensor sum_of_slots(const Tensor& slots, int64_t active, DType dtype) {
  const Tensor grid = reshape(slots, {-1, active, slots.size(1)});
  Tensor sum = cast(select(grid, 1, 0), DType::f32);
  for (int64_t k = 1; k < active; ++k) sum = add(sum, cast(select(grid, 1, k), DType::f32));
  return cast(sum, dtype);
}

Tensor shard_gradient(const Tensor& grad, const Tensor& x, const std::vector<int32_t>& ranges) {
  const int64_t F = grad.extent(1), D = x.extent(1), R = x.extent(0);
  const Tensor g = to_contiguous(grad), rows = to_contiguous(x), dw = Tensor::empty({F, D});
  codegen::gemm(F, D, R, {g.raw_data(), g.dtype(), 1, F}, {rows.raw_data(), rows.dtype(), D, 1},
                {dw.raw_data(), DType::f32, D}, codegen::ContractionTree::ranges(ranges));
  if (Meter* meter = Meter::current()) meter->add_flops(2.0 * static_cast<double>(F * D * R));
  return dw;
}

Tensor weight_gradient(const Tensor& grad, const Tensor& x, const TokenRanges& counts) {
  std::vector<Tensor> shards;
  int64_t begin = 0;
  for (const auto& ranges : counts) {
    const int64_t n = rows_in({ranges});
    shards.push_back(shard_gradient(narrow(grad, 0, begin, n), narrow(x, 0, begin, n), ranges));
    begin += n;
  }
  return shards.size() == 1 ? shards[0] : stack(shards, 0);
}

}  // namespace

Tensor index_tensor(std::span<const int64_t> values) {
  return Tensor::of(std::vector<int64_t>(values.begin(), values.end()));
}

Routing route(const ModelConfig& config, const Tensor& x_TD, const Tensor& router_ED) {
  const Tensor logits = matmul(cast(x_TD, DType::f32), transpose(router_ED, 0, 1));
  const Tensor scores = softmax(logits, -1);
  const Tensor ids = topk(detach(scores), config.active_experts).indices;
  const Tensor chosen = gather(scores, 1, ids);
  Routing routing{truediv(chosen, sum(chosen, {.dims = {1}, .keepdim = true})), {}};
  const Tensor dense = to_contiguous(ids);
  routing.experts.assign(dense.data<int64_t>(), dense.data<int64_t>() + dense.numel());
  return routing;
}

Tensor rows_of_slots(const Tensor& x_TD, int64_t active, const std::vector<int64_t>& slots) {
  std::vector<int64_t> tokens, row_of_slot(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    tokens.push_back(slots[i] / active);
    row_of_slot[static_cast<size_t>(slots[i])] = static_cast<int64_t>(i);
  }
  const DType dtype = x_TD.dtype();
  return function(
      "rows_of_slots", {x_TD}, [&] { return index_select(x_TD, 0, index_tensor(tokens)); },
      [=](const Tensor& g) -> std::vector<Tensor> {
        return {sum_of_slots(index_select(g, 0, index_tensor(row_of_slot)), active, dtype)};
      });
}

Tensor permuted_rows(const Tensor& x, const std::vector<int64_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return function(
      "permuted_rows", {x}, [&] { return index_select(x, 0, index_tensor(order)); },
      [inverse](const Tensor& g) -> std::vector<Tensor> { return {index_select(g, 0, index_tensor(inverse))}; });
}

Tensor combine_slots(const Tensor& y_slots, const Tensor& weights_TK, int64_t active) {
  const Tensor grid = reshape(y_slots, {-1, active, y_slots.size(1)});
  Tensor sum;
  for (int64_t k = 0; k < active; ++k) {
    const Tensor part = mul(cast(select(grid, 1, k), DType::f32), narrow(weights_TK, 1, k, 1));
    sum = k == 0 ? part : add(sum, part);
  }
  return cast(sum, y_slots.dtype());
}

int64_t rows_in(const TokenRanges& counts) {
  int64_t rows = 0;
  for (const auto& ranges : counts) rows = std::accumulate(ranges.begin(), ranges.end(), rows);
  return rows;
}

Tensor ragged_linear(const Tensor& x_RD, const Tensor& w_FD, const TokenRanges& counts) {
  return function(
      "ragged_linear", {x_RD, w_FD}, [&] { return matmul(x_RD, transpose(w_FD, 0, 1)); },
      [x = detach(x_RD), w = detach(w_FD), counts](const Tensor& g) -> std::vector<Tensor> {
        return {matmul(g, w, {.out_dtype = x.dtype()}), weight_gradient(g, x, counts)};
      });
}

Tensor expert_forward(const Tensor& x_RD, const ExpertWeights& weights, const TokenRanges& counts) {
  const Tensor gate = ragged_linear(x_RD, weights.gate, counts), up = ragged_linear(x_RD, weights.up, counts);
  return ragged_linear(swiglu(gate, up), weights.down, counts);
}

}  // namespace tutti::layouts
