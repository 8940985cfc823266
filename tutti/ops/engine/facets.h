// Building blocks for the facets of ops: shape rules, reference loops, sharding text and samples that many ops share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tutti/ops/engine/dispatch.h"

namespace tutti::facets {

// ---- shape rules ----------------------------------------------------------------------------------------------------

Shape broadcast_inputs(const OpCall& call);
DType promote_inputs(const OpCall& call);
// One output: inputs broadcast, dtypes promoted.
void infer_pointwise(const OpCall& call, OutputMetas& out);

// ---- reference loops ------------------------------------------------------------------------------------------------

// Walks the elements of `sizes` in row-major order: visit(index, offsets) with the element offset of each tensor
// (broadcast against `sizes`).
void for_each_element(const Extents& sizes, std::span<const Tensor> tensors,
                      const std::function<void(int64_t index, const int64_t* offsets)>& visit);
double read_double(const Tensor& t, int64_t offset);  // element at raw_data() + offset elements
int64_t read_int64(const Tensor& t, int64_t offset);
void write_double(const Tensor& t, int64_t offset, double value);
void write_int64(const Tensor& t, int64_t offset, int64_t value);
// Elements of `t` broadcast to `sizes`, as doubles in row-major order.
std::vector<double> values(const Tensor& t, const Extents& sizes);
// visit(row, n) for each row of n elements along the last dim of `x`.
template <class Visit>
void for_each_row(const Tensor& x, Visit visit) {
  const int64_t n = x.extents().back();
  const int64_t rows = n == 0 ? 0 : x.numel() / n;
  for (int64_t row = 0; row < rows; ++row) visit(row, n);
}

// outputs[0][i] = fn(inputs...) in double, or in int64 when the output is an integer or boolean and so are all inputs.
void reference_map(const OpCall& call, std::span<const Tensor> outputs, const std::function<double(const double*)>& fn,
                   const std::function<int64_t(const int64_t*)>& integer_fn = nullptr);

// ---- sharding text --------------------------------------------------------------------------------------------------

// Pointwise rule for the ranks of this call: "x[ab] y[b] -> z[ab]"; a broadcast dim of size 1 is written 1.
// `classes` is what stands behind the bars ("| | affine"). Inputs whose bit is set in `opaque` get '#'.
std::string pointwise_sharding(const OpCall& call, const char* classes, uint32_t opaque = 0);

// ---- samples --------------------------------------------------------------------------------------------------------

// Deterministic values in [lo, hi) (integers: floor), dense.
Tensor sample_tensor(uint64_t seed, const Extents& sizes, DType dtype = DType::f32, double lo = -2.0, double hi = 2.0);
// The same values in a tensor whose strides are not dense: every dim is a step of 2 in a larger one.
Tensor strided_copy(const Tensor& t);
// Samples of a pointwise op with `arity` inputs: odd sizes, broadcast, empty, 0-dim, strided, for each dtype.
std::vector<Sample> pointwise_samples(int arity, std::span<const DType> dtypes, double lo, double hi,
                                      const Attrs& attrs = {});

}  // namespace tutti::facets
