// Elements of each line of a tensor by rank: what sort and topk share. The order is that of tutti/ops/sorting/order.h.
#pragma once

#include <functional>

#include "tutti/ops/engine/op_def.h"
#include "tutti/ops/sorting/order.h"

namespace tutti::facets {

// Writes the first elements of each line of `x` along `dim`, as many as outputs[0] holds, to outputs[0] and their
// indices in the line to outputs[1]. `select` sorts [begin, middle) to be the least of [begin, end).
void rank_lines(const Tensor& x, int dim, bool descending, std::span<const Tensor> outputs,
                void (*select)(Ranked* begin, Ranked* middle, Ranked* end));

// Whether element `a` of a line stands before element `b` because of their values.
using Before = std::function<bool(int64_t a, int64_t b)>;

// As rank_lines, by the rules as they are written: `choose` gives the indices of a line of `length` elements in order.
void reference_rank(const Tensor& x, int dim, bool descending, std::span<const Tensor> outputs,
                    const std::function<std::vector<int64_t>(int64_t length, const Before& before)>& choose);

// The cotangent of outputs[0] at the places in `x` that outputs[1] names, zeros elsewhere.
void rank_vjp(const VjpCall& call, int64_t dim, std::span<Tensor> grads);

}  // namespace tutti::facets
