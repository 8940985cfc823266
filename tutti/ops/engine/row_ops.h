// The common parts of reductions and scans: options, shapes, reference loops, sharding text.
#pragma once

#include <functional>

#include "tutti/ops/engine/attrs.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::rows {

// Attrs of a reduction. `dims` is normalized; it holds every dim when the whole tensor is reduced.
struct ReduceAttrs {
  Dims dims;
  bool keepdim = false;
  DType dtype = DType::f32;  // of the result
  int64_t leaf = 0;          // elements per leaf of the tree; 0: the default
  double correction = 0;     // var
  static constexpr auto fields() {
    return field_list(field::number<&ReduceAttrs::dims>("dims"), field::number<&ReduceAttrs::keepdim>("keepdim"),
                      field::output_dtype<&ReduceAttrs::dtype>("dtype"), field::number<&ReduceAttrs::leaf>("leaf"),
                      field::number<&ReduceAttrs::correction>("correction"));
  }
};
inline const ReduceAttrs& reduce_attrs(const OpCall& call) { return call.attrs.as<ReduceAttrs>(); }

bool contains(const Dims& dims, int64_t dim);
// The sizes of a result: reduced dims are 1 or left out.
Shape reduced_sizes(const Shape& sizes, const Dims& dims, bool keepdim);
// Elements of a row.
SymInt row_length(const Shape& sizes, const Dims& dims);

void infer_reduction(const OpCall& call, OutputMetas& out);
Dims reduce_dims(const OpCall& call);
int64_t reduce_leaf(const OpCall& call);
Cost reduce_cost(const OpCall& call);  // one flop per input element

// Visits the rows of x over `dims` in row-major order of the kept dims; `offsets` are those of the row's elements, in
// row-major order of `dims`.
void for_each_row(const Tensor& x, const Dims& dims,
                  const std::function<void(int64_t row, const std::vector<int64_t>& offsets)>& visit);

// `t`, with the sizes of a result, with the reduced dims as 1, so that it broadcasts against the input.
Tensor keep_dims(const Tensor& t, const Shape& input_sizes, const Dims& dims);

// "x[ab] -> y[b] | kind{a} | partial" where a are the reduced dims.
// The classes of a sum over `dims`, ascending, of a tensor of these sizes, whose rows are added by halving down to
// leaves of `leaf` elements.
std::string tree_classes(const Shape& sizes, const Dims& dims, int64_t leaf);
std::string reduction_sharding(const OpCall& call, const char* kind, const char* partial);
// The same with whole (upper-case) reduced dims and no partial values.
std::string whole_row_sharding(const OpCall& call);

// Reductions over each set of dims, with and without keepdim; the first dtype in every shape, the others in one.
// `fill` completes attrs that hold dims and keepdim.
std::vector<Sample> reduction_samples(std::span<const DType> dtypes, double lo, double hi,
                                      const std::function<void(const Tensor&, ReduceAttrs&)>& fill,
                                      bool with_empty_rows);

}  // namespace tutti::rows
