#include "tutti/ops/convolution.h"

#include "tutti/ops/channel_bias.h"
#include "tutti/ops/conv/conv_products.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/squeeze.h"

namespace tutti {
namespace {

using facets::ConvGeometry;
using facets::Triple;
using facets::volume;

struct ConvAttrs {
  ConvGeometry g;
  DType out_dtype;
  static constexpr auto fields() {
    return field_list(field::nested<&ConvAttrs::g>("g"), field::output_dtype<&ConvAttrs::out_dtype>("out_dtype"));
  }
};
const ConvGeometry& geometry_of(const OpCall& call) { return call.attrs.as<ConvAttrs>().g; }
DType wide(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// [first, second, the spatial dims of `t`].
Shape sizes_of(const ConvGeometry& g, SymInt first, SymInt second, const Triple& t) {
  Shape sizes = {first, second};
  for (size_t d = static_cast<size_t>(3 - g.dims); d < 3; ++d) sizes.push_back(t[d]);
  return sizes;
}

void check_channels(const OpCall& call, SymInt in, SymInt weight_in, SymInt out) {
  const int64_t groups = geometry_of(call).groups;
  TUTTI_CHECK(in == weight_in * groups && remainder(out, groups) == 0,
              "{}: {} input channels, {} output channels and a weight for {} input channels in {} groups; expected {} "
              "* {} input channels, "
              "and groups that divide the output channels",
              call.op.name, in, out, weight_in, groups, weight_in, groups);
}

// ---- references -----------------------------------------------------------------------------------------------------

// visit(y, x, w) with the offsets of the elements of every product, in dense tensors.
template <class Visit>
void for_each_product(const ConvGeometry& g, int64_t images, int64_t out_channels, int64_t channels, Visit visit) {
  const int64_t features = out_channels / g.groups, in_channels = channels * g.groups;
  facets::for_each_index({images, out_channels, channels, volume(g.output), volume(g.kernel)}, [&](const Extents& at) {
    const int64_t p[3] = {at[3] / g.output[2] / g.output[1], at[3] / g.output[2] % g.output[1], at[3] % g.output[2]};
    const int64_t k[3] = {at[4] / g.kernel[2] / g.kernel[1], at[4] / g.kernel[2] % g.kernel[1], at[4] % g.kernel[2]};
    int64_t in = at[0] * in_channels + at[1] / features * channels + at[2];
    for (size_t d = 0; d < 3; ++d) {
      const int64_t i = p[d] * g.stride[d] - g.before[d] + k[d] * g.dilation[d];
      if (i < 0 || i >= g.size[d]) return;
      in = in * g.size[d] + i;
    }
    visit((at[0] * out_channels + at[1]) * volume(g.output) + at[3], in,
          (at[1] * channels + at[2]) * volume(g.kernel) + at[4]);
  });
}

// outputs[0] sums products of call[0] and call[1]; `order` says which of (y, x, w) is the output, and which the two
// inputs.
void reference(const OpCall& call, std::span<const Tensor> outputs, const Tensor& y, const Tensor& w,
               std::array<int, 3> order) {
  const Tensor a = to_contiguous(call[0]), b = to_contiguous(call[1]);
  std::vector<double> sums(static_cast<size_t>(outputs[0].numel()), facets::kSumIdentity);
  for_each_product(
      geometry_of(call), y.extents()[0], w.extents()[0], w.extents()[1], [&](int64_t in_y, int64_t in_x, int64_t in_w) {
        const int64_t at[] = {in_y, in_x, in_w};
        const auto offset = [&](int k) { return at[order[static_cast<size_t>(k)]]; };
        sums[static_cast<size_t>(offset(0))] += facets::read_double(a, offset(1)) * facets::read_double(b, offset(2));
      });
  for (size_t i = 0; i < sums.size(); ++i) facets::write_double(outputs[0], static_cast<int64_t>(i), sums[i]);
}

// ---- the ops --------------------------------------------------------------------------------------------------------

extern const OpDef kConvolution, kInputGradient, kWeightGradient;

Tensor product(const OpDef& op, const Tensor& a, const Tensor& b, const ConvGeometry& g, DType out) {
  return call_op(op, Attrs::of(ConvAttrs{g, out}), a, b);
}

Cost cost(const OpCall& call) {
  OutputMetas out;
  call.op.infer(call, out);
  const ConvGeometry& g = geometry_of(call);
  // Every product of an output, a tap and an input channel of the group, once.
  const bool of_weight = &call.op == &kWeightGradient;
  const Extents w = of_weight ? concrete(out.meta[0].sizes) : call[1].extents();
  const double images = static_cast<double>(call[0].extents()[0]),
               elements = static_cast<double>(numel_of(concrete(out.meta[0].sizes)));
  return {2.0 * images * static_cast<double>(volume(g.output)) * static_cast<double>(numel_of(w)),
          static_cast<double>(call[0].nbytes() + call[1].nbytes()) +
              elements * static_cast<double>(itemsize(out.meta[0].dtype))};
}

std::string letters(const ConvGeometry& g, const char* first) {
  return first + std::string("XYZ").substr(static_cast<size_t>(3 - g.dims));
}
std::string kernel_letters(const ConvGeometry& g, const char* first) {
  return first + std::string("KLM").substr(static_cast<size_t>(3 - g.dims));
}
std::string out_letters(const ConvGeometry& g, const char* first) {
  return first + std::string("PQR").substr(static_cast<size_t>(3 - g.dims));
}

// Samples of the three ops: `make` completes the inputs from x, weight and y of a convolution.
std::vector<Sample> samples(int first, int second) {
  std::vector<Sample> list;
  const auto add = [&](const char* name, const Extents& x, const Extents& w, const ConvOptions& o, DType dtype,
                       bool widened = false) {
    Dims size, kernel;
    for (int d = 2; d < x.ndim(); ++d)
      size.push_back(x[static_cast<size_t>(d)]), kernel.push_back(w[static_cast<size_t>(d)]);
    const ConvGeometry g = facets::conv_geometry("sample", size, kernel, o);
    const Extents y = concrete(sizes_of(g, x[0], w[0], g.output));
    const Extents all[] = {y, x, w};
    list.push_back({name,
                    {facets::sample_tensor(1, all[first], dtype), facets::sample_tensor(2, all[second], dtype)},
                    Attrs::of(ConvAttrs{g, widened ? wide(dtype) : dtype})});
  };
  const bool of_weight = second == 1;
  add("line", {2, 3, 11}, {4, 3, 3}, {.padding = {1}}, DType::f32);
  add("plane_stride_dilation_groups", {2, 4, 7, 8}, {6, 2, 3, 2},
      {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 3}, .groups = 2}, DType::f32);
  add("pointwise", {3, 5, 4, 4}, {7, 5, 1, 1}, {}, DType::f32);
  add("space", {1, 2, 4, 3, 5}, {3, 2, 2, 2, 2}, {.padding = {1}}, DType::f32);
  add("same_f64", {2, 2, 5, 6}, {3, 2, 4, 3}, {.mode = ConvPadding::same}, DType::f64);
  add("depthwise", {2, 3, 6, 6}, {3, 1, 3, 3}, {.padding = {1}, .groups = 3}, DType::f32);
  add("bf16", {2, 3, 9}, {4, 3, 5}, {.stride = {2}, .padding = {2}}, DType::bf16, of_weight);
  add("no_images", {0, 3, 9}, {4, 3, 5}, {}, DType::f32);
  add("no_channels", {2, 0, 9}, {4, 0, 5}, {}, DType::f32);
  return list;
}

const OpDef kConvolution{
    .name = "convolution",
    .num_inputs = 2,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          check_channels(call, call[0].size(1), call[1].size(1), call[1].size(0));
          out.add(call.attrs.as<ConvAttrs>().out_dtype,
                  sizes_of(geometry_of(call), call[0].size(0), call[1].size(0), geometry_of(call).output));
        },
    .reference = [](const OpCall& call,
                    std::span<const Tensor> outputs) { reference(call, outputs, outputs[0], call[1], {0, 1, 2}); },
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const ConvGeometry& g = c.attrs.as<ConvAttrs>().g;
                       if (c.needs(0))
                         grads[0] = product(kInputGradient, c.grads[0], c.inputs[1], g, c.input_metas[0].dtype);
                       if (c.needs(1))
                         grads[1] = product(kWeightGradient, c.grads[0], c.inputs[0], g, wide(c.input_metas[1].dtype));
                     },
                 .saves_inputs = 0b11},
    // A kernel and not a recipe: columns of tiles and the tree GEMM of codegen.
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          facets::conv_forward(geometry_of(call), call[0], call[1], outputs[0]);
        },
    .sharding =
        [](const OpCall& call) {
          const ConvGeometry& g = geometry_of(call);
          const char *x = g.groups == 1 ? "nc" : "nC", *w = g.groups == 1 ? "oc" : "OD",
                     *y = g.groups == 1 ? "no" : "nO";
          return fmt::format("x[{}] w[{}] -> y[{}] | {} | bilin", letters(g, x), kernel_letters(g, w),
                             out_letters(g, y), g.groups == 1 ? "sum{c}" : "");
        },
    .recompute = Recompute::costly,
    .cost = cost,
    .samples = [] { return samples(1, 2); },
    .tolerance = {.f32 = 2e-5},
};

const OpDef kInputGradient{
    .name = "convolution_input_gradient",
    .num_inputs = 2,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          const ConvGeometry& g = geometry_of(call);
          TUTTI_CHECK(call[0].size(1) == call[1].size(0),
                      "convolution_input_gradient: the gradient {} has {} channels, the weight {} makes {}",
                      describe(call[0]), call[0].size(1), describe(call[1]), call[1].size(0));
          out.add(call.attrs.as<ConvAttrs>().out_dtype,
                  sizes_of(g, call[0].size(0), call[1].size(1) * g.groups, g.size));
        },
    .reference = [](const OpCall& call,
                    std::span<const Tensor> outputs) { reference(call, outputs, call[0], call[1], {1, 0, 2}); },
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const ConvGeometry& g = c.attrs.as<ConvAttrs>().g;
                       if (c.needs(0))
                         grads[0] = product(kConvolution, c.grads[0], c.inputs[1], g, c.input_metas[0].dtype);
                       if (c.needs(1))
                         grads[1] = product(kWeightGradient, c.inputs[0], c.grads[0], g, wide(c.input_metas[1].dtype));
                     },
                 .saves_inputs = 0b11},
    // A kernel and not a recipe: the tree GEMM of codegen, and taps that are added where windows overlap.
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          facets::conv_input_gradient(geometry_of(call), call[0], call[1], outputs[0]);
        },
    .sharding =
        [](const OpCall& call) {
          const ConvGeometry& g = geometry_of(call);
          const char *x = g.groups == 1 ? "nc" : "nC", *w = g.groups == 1 ? "oc" : "OD",
                     *y = g.groups == 1 ? "no" : "nO";
          return fmt::format("g[{}] w[{}] -> x[{}] | {} | bilin", out_letters(g, y), kernel_letters(g, w),
                             letters(g, x), g.groups == 1 ? "sum{o}" : "");
        },
    .cost = cost,
    .samples = [] { return samples(0, 2); },
    .tolerance = {.f32 = 2e-5},
};

const OpDef kWeightGradient{
    .name = "convolution_weight_gradient",
    .num_inputs = 2,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          const ConvGeometry& g = geometry_of(call);
          TUTTI_CHECK(call[0].size(0) == call[1].size(0),
                      "convolution_weight_gradient: the gradient {} and x {} have different numbers of images",
                      describe(call[0]), describe(call[1]));
          out.add(call.attrs.as<ConvAttrs>().out_dtype,
                  sizes_of(g, call[0].size(1), floordiv(call[1].size(1), g.groups), g.kernel));
        },
    .reference = [](const OpCall& call,
                    std::span<const Tensor> outputs) { reference(call, outputs, call[0], outputs[0], {2, 0, 1}); },
    .gradient = {.vjp =
                     [](const VjpCall& c, std::span<Tensor> grads) {
                       const ConvGeometry& g = c.attrs.as<ConvAttrs>().g;
                       if (c.needs(0))
                         grads[0] = product(kConvolution, c.inputs[1], c.grads[0], g, c.input_metas[0].dtype);
                       if (c.needs(1))
                         grads[1] = product(kInputGradient, c.inputs[0], c.grads[0], g, c.input_metas[1].dtype);
                     },
                 .saves_inputs = 0b11},
    // A kernel and not a recipe: columns and the tree GEMM of codegen.
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          facets::conv_weight_gradient(geometry_of(call), call[0], call[1], outputs[0]);
        },
    .sharding =
        [](const OpCall& call) {
          const ConvGeometry& g = geometry_of(call);
          const char *x = g.groups == 1 ? "nc" : "nC", *w = g.groups == 1 ? "oc" : "OD",
                     *y = g.groups == 1 ? "no" : "nO";
          return fmt::format("g[{}] x[{}] -> w[{}] | sum{{n}} | bilin", out_letters(g, y), letters(g, x),
                             kernel_letters(g, w));
        },
    .cost = cost,
    .samples = [] { return samples(0, 1); },
    .tolerance = {.f32 = 2e-5},
};

// ---- public functions -----------------------------------------------------------------------------------------------

bool is_matrix_dtype(DType dtype) { return is_floating(dtype) && !is_fp8(dtype); }

Dims spatial(const Tensor& t, int dims) {
  Dims result;
  for (int d = t.ndim() - dims; d < t.ndim(); ++d) result.push_back(t.extent(d));
  return result;
}

Tensor convolve(const char* where, int dims, const Tensor& x, const Tensor& weight, const Tensor& bias,
                const ConvOptions& options) {
  TUTTI_CHECK(is_matrix_dtype(x.dtype()) && is_matrix_dtype(weight.dtype()),
              "{}: needs float operands (f64, f32, bf16, f16): x is {}, weight {}; cast() them", where, describe(x),
              describe(weight));
  TUTTI_CHECK(weight.ndim() == dims + 2 && (x.ndim() == dims + 2 || x.ndim() == dims + 1),
              "{}: x is {}, weight {}; expected x [N, C, {} spatial dims] or without N, weight [O, C / groups, {} "
              "spatial dims]",
              where, describe(x), describe(weight), dims, dims);
  if (x.ndim() == dims + 1) return squeeze(convolve(where, dims, unsqueeze(x, 0), weight, bias, options), 0);
  TUTTI_CHECK(options.groups >= 1 && remainder(weight.size(0), options.groups) == 0 &&
                  x.size(1) == weight.size(1) * options.groups,
              "{}: x has {} channels, the weight is {}, groups {}; expected {} * groups channels, and groups that "
              "divide the {} outputs",
              where, x.size(1), describe(weight), options.groups, weight.size(1), weight.size(0));
  const ConvGeometry g = facets::conv_geometry(where, spatial(x, dims), spatial(weight, dims), options);
  return add_channel_bias(where, product(kConvolution, x, weight, g, promote(x.dtype(), weight.dtype())), bias);
}

void check_gradient(const char* where, const Tensor& grad, const Tensor& other, int dims, const ConvOptions& o) {
  TUTTI_CHECK(is_matrix_dtype(grad.dtype()) && is_matrix_dtype(other.dtype()) && grad.ndim() == dims + 2 &&
                  other.ndim() == dims + 2 && dims >= 1 && dims <= 3,
              "{}: the gradient is {}, the other operand {}; expected floats (f64, f32, bf16, f16) of two dims and {} "
              "spatial ones",
              where, describe(grad), describe(other), dims);
  TUTTI_CHECK(o.groups >= 1 && remainder(grad.size(1), o.groups) == 0,
              "{}: the gradient is {} in {} groups; the groups must divide its channels", where, describe(grad),
              o.groups);
}

void check_outputs(const char* where, const Tensor& grad, const ConvGeometry& g) {
  const Shape expected = sizes_of(g, grad.size(0), grad.size(1), g.output);
  TUTTI_CHECK(grad.sizes() == expected, "{}: the gradient is {}; a convolution with these options gives {}", where,
              describe(grad), expected);
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  return convolve("conv1d", 1, x, weight, bias, options);
}
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  return convolve("conv2d", 2, x, weight, bias, options);
}
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  return convolve("conv3d", 3, x, weight, bias, options);
}

Tensor convolution_input_gradient(const Tensor& grad, const Tensor& weight, const Dims& spatial_sizes,
                                  const ConvOptions& options) {
  const char* where = "convolution_input_gradient";
  const int dims = spatial_sizes.ndim();
  check_gradient(where, grad, weight, dims, options);
  const ConvGeometry g = facets::conv_geometry(where, spatial_sizes, spatial(weight, dims), options);
  check_outputs(where, grad, g);
  return product(kInputGradient, grad, weight, g, grad.dtype());
}

Tensor convolution_weight_gradient(const Tensor& grad, const Tensor& x, const Dims& kernel_sizes,
                                   const ConvOptions& options) {
  const char* where = "convolution_weight_gradient";
  const int dims = kernel_sizes.ndim();
  check_gradient(where, grad, x, dims, options);
  TUTTI_CHECK(remainder(x.size(1), options.groups) == 0,
              "{}: x is {} in {} groups; the groups must divide its channels", where, describe(x), options.groups);
  const ConvGeometry g = facets::conv_geometry(where, spatial(x, dims), kernel_sizes, options);
  check_outputs(where, grad, g);
  return product(kWeightGradient, grad, x, g, promote(wide(grad.dtype()), wide(x.dtype())));
}

}  // namespace tutti

TUTTI_OPS(convolution, &::tutti::kConvolution, &::tutti::kInputGradient, &::tutti::kWeightGradient)
