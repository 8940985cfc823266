#include "tutti/ops/norm/facets.h"

#include "tutti/ops/engine/row_ops.h"
#include "tutti/ops/sum_to.h"

namespace tutti::facets {
namespace {

// Sizes of x with the last dim 1: one statistic per row.
Shape row_sizes(const Tensor& x) {
  Shape sizes = x.sizes();
  sizes.back() = 1;
  return sizes;
}

// Letters of x: tokens a, b, ... and the normalized dim H whole; the other operands follow by size.
std::string letters(const Tensor& x, const Tensor& t) {
  std::string text;
  for (int d = 0; d < t.ndim(); ++d) {
    const int at = x.ndim() - t.ndim() + d;
    const bool last = at == x.ndim() - 1;
    text += t.sizes()[static_cast<size_t>(d)] == 1 && x.sizes()[static_cast<size_t>(at)] != 1 ? '1'
            : last                                                                            ? 'H'
                   : static_cast<char>('a' + at);
  }
  return text;
}

}  // namespace

int eps_param(const OpCall& call, codegen::ParamValue* params) {
  params[0].f = call.attrs.as<NormAttrs>().eps;
  return 1;
}

Expr widened(RecipeBuilder& b, int i) { return cast(b.in(i), stats_dtype(b.call[0].dtype())); }

void infer_norm(const OpCall& call, OutputMetas& out) {
  out.add(call[0].dtype(), call[0].sizes());
  for (int k = 1; k < call.op.num_outputs; ++k) out.add(stats_dtype(call[0].dtype()), row_sizes(call[0]));
}

void infer_like_first(const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); }

void infer_weight(const OpCall& call, OutputMetas& out) {
  Shape sizes;
  const int64_t ndim = call.attrs.as<WeightAttrs>().ndim;
  for (int64_t d = call[0].ndim() - ndim; d < call[0].ndim(); ++d) sizes.push_back(call[0].size(d));
  for (int k = 0; k < call.op.num_outputs; ++k) out.add(stats_dtype(call[0].dtype()), sizes);
}

// The dims in front of the weight's are the tokens.
Dims weight_row_dims(const OpCall& call) {
  Dims dims;
  for (int64_t d = 0; d < call[0].ndim() - call.attrs.as<WeightAttrs>().ndim; ++d) dims.push_back(d);
  return dims;
}

int64_t weight_leaf(const OpCall&) { return token_grain(); }

void sum_over_tokens(const OpCall& call, const Tensor& output, const std::vector<double>& terms) {
  const int64_t n = output.numel(), tokens = n == 0 ? 0 : call[0].numel() / n;
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int64_t t = 0; t < tokens; ++t) sum += terms[static_cast<size_t>(t * n + i)];
    write_double(output, i, sum);
  }
}

std::string norm_sharding(const OpCall& call) {
  const Tensor& x = call[0];
  std::string text, row = letters(x, x);
  for (const Tensor& t : call.inputs) text += fmt::format("#x[{}] ", letters(x, t));
  text += fmt::format("-> y[{}]", row);
  row.back() = '1';
  for (int k = 1; k < call.op.num_outputs; ++k) text += fmt::format(" s[{}]", row);
  return text + " | |";
}

std::string weight_sharding(const OpCall& call) {
  const Tensor& x = call[0];
  std::string text;
  for (const Tensor& t : call.inputs) text += fmt::format("#x[{}] ", letters(x, t));
  const std::string all = letters(x, x);
  const size_t cut = static_cast<size_t>(x.ndim() - call.attrs.as<WeightAttrs>().ndim);
  text += "->";
  for (int k = 0; k < call.op.num_outputs; ++k) text += fmt::format(" y[{}]", all.substr(cut));
  return fmt::format("{} | {} |", text, rows::tree_classes(x.sizes(), weight_row_dims(call), weight_leaf(call)));
}

std::vector<Sample> norm_samples(std::string_view kinds, const Attrs& attrs) {
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const Extents& sizes : {Extents{5, 7}, Extents{3, 2, 33}, Extents{2, 600}, Extents{1, 1}, Extents{130, 4}}) {
      Sample s{fmt::format("{}_{}", name_of(dtype), list.size()), {}, attrs};
      for (size_t i = 0; i < kinds.size(); ++i) {
        Extents e = sizes;
        if (kinds[i] == 'w') e = {sizes.back()};
        if (kinds[i] == 'r') e.back() = 1;
        const bool positive = kinds[i] == 'r' && i + 1 == kinds.size();
        s.inputs.push_back(
            sample_tensor(i + 1, e, kinds[i] == 'r' ? stats_dtype(dtype) : dtype, positive ? 0.5 : -2.0, 2.0));
      }
      list.push_back(s);
    }
  }
  return list;
}

SymInt normalized_size(const char* name, const Tensor& x) {
  TUTTI_CHECK(x.ndim() >= 1, "{}: x is {}, which has no dim to normalize over; reshape it to [1] to have one", name,
              describe(x));
  return x.size(-1);
}

void check_norm(const char* name, const Tensor& x, const Tensor& weight) {
  normalized_size(name, x);
  TUTTI_CHECK(is_floating(x.dtype()) && !is_fp8(x.dtype()),
              "{}: x must be a float tensor (f64, f32, bf16, f16), it is {}", name, describe(x));
  bool fits = weight.ndim() >= 1 && weight.ndim() <= x.ndim();
  for (int d = 1; fits && d <= weight.ndim(); ++d) fits = weight.size(-d) == x.size(-d);
  TUTTI_CHECK(fits, "{}: weight is {}, which are not the trailing dims of x {}", name, weight.sizes(), x.sizes());
}

}  // namespace tutti::facets
