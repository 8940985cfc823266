// The common parts of the tables of pointwise ops (unary, binary, comparison, ...): loops of references over operands
// of mixed types, scalar operands, gradients of broadcasting, samples.
#pragma once

#include <functional>
#include <optional>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/scalar.h"

namespace tutti::pointwise {

// ---- references -----------------------------------------------------------------------------------------------------

// target[i] = fn(operands...), each operand first converted to `compute`: in double for a float type, else in int64.
// The scalar, if there is one, stands at place `scalar_at` among the operands. `target` may have any strides.
struct ReferenceMap {
  const Tensor& target;
  std::span<const Tensor> inputs;
  DType compute;
  std::optional<Scalar> scalar = std::nullopt;
  int scalar_at = 1;
};
void run_map(const ReferenceMap& map, const std::function<double(const double*)>& fn,
             const std::function<int64_t(const int64_t*)>& integer_fn);

// ---- recipes --------------------------------------------------------------------------------------------------------

// `scalar` as a kernel parameter for a node of type `dtype`.
codegen::ParamValue param_of(const Scalar& scalar, DType dtype);
// Input `i` converted to `compute`.
inline Expr in(RecipeBuilder& b, int i, DType compute) { return cast(b.in(i), compute); }

// ---- gradients ------------------------------------------------------------------------------------------------------

// `grad` as the cotangent of an input with `meta`: summed over what was broadcast, in the dtype of the input. A sum
// stays in f32 where the input is narrower: it may be the gradient of a parameter (numerics contract, N4).
Tensor reduce_like(const Tensor& grad, const OutputMeta& meta);
// Whether reduce_like() sums: `grad` has the sizes of the result, to which the input was broadcast.
bool is_summed(const Tensor& grad, const OutputMeta& meta);
// In the dtype in which kernels compute; what is undefined stays so.
Tensor widened(const Tensor& x);

// ---- samples --------------------------------------------------------------------------------------------------------

struct Range {
  double lo, hi;
};
// Odd sizes for every dtype; broadcast, strided, empty, one-element and 0-dim calls for the first. Input i holds values
// of ranges[i] (integers of integer_ranges[i]).
std::vector<Sample> samples(std::span<const DType> dtypes, std::span<const Range> ranges,
                            std::span<const Range> integer_ranges, const Attrs& attrs = {});

}  // namespace tutti::pointwise
