// Facets that normalizations over the last dim share: rows that are normalized, tokens that the weight's gradient sums.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tutti/ops/engine/attrs.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::facets {

// Attrs of the gradient of a weight that spans the last `ndim` dims.
struct WeightAttrs {
  int64_t ndim;
  static constexpr auto fields() { return field_list(field::number<&WeightAttrs::ndim>("ndim")); }
};
struct NormAttrs {
  double eps;
  static constexpr auto fields() { return field_list(field::number<&NormAttrs::eps>("eps")); }
};
int eps_param(const OpCall& call, codegen::ParamValue* params);

// Statistics and gradients of weights are f32 (f64 for f64).
inline DType stats_dtype(DType dtype) { return compute_dtype(dtype); }
// Input i of a recipe in that dtype.
Expr widened(RecipeBuilder& b, int i);

// y like x, then one statistic per row for each further output.
void infer_norm(const OpCall& call, OutputMetas& out);
void infer_like_first(const OpCall& call, OutputMetas& out);
std::string norm_sharding(const OpCall& call);

// Gradients of weights: the attribute is the weight's number of dims, the dims of x in front of them are summed as
// tokens.
void infer_weight(const OpCall& call, OutputMetas& out);
Dims weight_row_dims(const OpCall& call);
int64_t weight_leaf(const OpCall& call);
// output[i] = sum over tokens t of terms[t, i].
void sum_over_tokens(const OpCall& call, const Tensor& output, const std::vector<double>& terms);
std::string weight_sharding(const OpCall& call);

// Samples whose inputs have sizes relative to x: 'x' like x, 'w' its last dim, 'r' one per row; a last 'r' is positive.
std::vector<Sample> norm_samples(std::string_view kinds, const Attrs& attrs);
inline Attrs sample_eps() { return Attrs::of(NormAttrs{1e-3}); }
inline Attrs sample_weight() { return Attrs::of(WeightAttrs{1}); }

// UsageError unless x is a float tensor whose trailing dims are those of `weight`.
void check_norm(const char* name, const Tensor& x, const Tensor& weight);
// The size of the last dim of x. UsageError, naming the op, when there is none.
SymInt normalized_size(const char* name, const Tensor& x);

inline constexpr const char* kNormOnce =
    "gradients of this gradient are not defined; write the norm with mul, sum and rsqrt to have them";

}  // namespace tutti::facets
