#include "tutti/ops/squeeze.h"

#include "tutti/ops/engine/dim_attrs.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti {
namespace {

// The dim of size 1 that goes (numbered in x) or comes (numbered in the result).
int dim_of(const Attrs& attrs) { return static_cast<int>(attrs.as<DimAttrs>().dim); }

void unit_dim_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor flat = outputs[0].view_as({outputs[0].numel()}, {1}, 0);
  int64_t i = 0;
  facets::for_each_index(call[0].extents(), [&](const Extents& at) { facets::move_element(flat, {i++}, call[0], at); });
}

std::string without(std::string letters, int dim) { return letters.erase(static_cast<size_t>(dim), 1); }

std::vector<Sample> squeeze_samples() {
  return {{"middle", {facets::sample_tensor(1, {3, 1, 5})}, Attrs::of(DimAttrs{1})},
          {"first_bf16", {facets::sample_tensor(2, {1, 7}, DType::bf16)}, Attrs::of(DimAttrs{0})},
          {"to_scalar", {facets::sample_tensor(3, {1})}, Attrs::of(DimAttrs{0})},
          {"empty", {facets::sample_tensor(4, {0, 1})}, Attrs::of(DimAttrs{1})}};
}

std::vector<Sample> unsqueeze_samples() {
  return {{"middle", {facets::sample_tensor(1, {3, 5})}, Attrs::of(DimAttrs{1})},
          {"last_strided", {facets::strided_copy(facets::sample_tensor(2, {3, 5}))}, Attrs::of(DimAttrs{2})},
          {"scalar", {facets::sample_tensor(3, {})}, Attrs::of(DimAttrs{0})},
          {"empty_i64", {facets::sample_tensor(4, {0, 2}, DType::i64)}, Attrs::of(DimAttrs{0})}};
}

const OpDef kSqueeze{
    .name = "squeeze",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          Shape sizes = call[0].sizes();
          sizes.erase(dim_of(call.attrs));
          out.add(call[0].dtype(), sizes);
        },
    .reference = unit_dim_reference,
    .gradient = {.vjp = [](const VjpCall& c,
                           std::span<Tensor> grads) { grads[0] = unsqueeze(c.grads[0], dim_of(c.attrs)); }},
    .view =
        [](const OpCall& call) {
          Extents sizes = call[0].extents(), strides = call[0].strides();
          sizes.erase(dim_of(call.attrs));
          strides.erase(dim_of(call.attrs));
          return call[0].view_as(sizes, strides, call[0].offset());
        },
    .sharding =
        [](const OpCall& call) {
          std::string in = facets::dim_letters(call[0].ndim());
          const int dim = dim_of(call.attrs);
          in[static_cast<size_t>(dim)] = '1';
          return fmt::format("x[{}] -> y[{}] | | id", in, without(in, dim));
        },
    .samples = squeeze_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

const OpDef kUnsqueeze{
    .name = "unsqueeze",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          Shape sizes = call[0].sizes();
          sizes.insert(dim_of(call.attrs), 1);
          out.add(call[0].dtype(), sizes);
        },
    .reference = unit_dim_reference,
    .gradient = {.vjp = [](const VjpCall& c,
                           std::span<Tensor> grads) { grads[0] = squeeze(c.grads[0], dim_of(c.attrs)); }},
    .view =
        [](const OpCall& call) {
          const int dim = dim_of(call.attrs);
          Extents sizes = call[0].extents(), strides = call[0].strides();
          // The stride that a dense neighbour would give keeps dense tensors dense.
          const int64_t stride =
              dim < call[0].ndim() ? sizes[static_cast<size_t>(dim)] * strides[static_cast<size_t>(dim)] : 1;
          sizes.insert(dim, 1);
          strides.insert(dim, stride);
          return call[0].view_as(sizes, strides, call[0].offset());
        },
    .sharding =
        [](const OpCall& call) {
          std::string out = facets::dim_letters(call[0].ndim() + 1);
          const int dim = dim_of(call.attrs);
          out[static_cast<size_t>(dim)] = '1';
          return fmt::format("x[{}] -> y[{}] | | id", without(out, dim), out);
        },
    .samples = unsqueeze_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

}  // namespace

Tensor squeeze(const Tensor& x, const Dims& dims) {
  const Dims chosen = normalize_dims(dims, x.ndim(), "squeeze");
  Tensor result = x;
  for (int i = chosen.ndim() - 1; i >= 0; --i) {  // from behind, so that the numbers in front stay true
    if (x.sizes()[static_cast<size_t>(chosen[static_cast<size_t>(i)])] == 1)
      result = call_op(kSqueeze, Attrs::of(DimAttrs{chosen[static_cast<size_t>(i)]}), result);
  }
  return result;
}

Tensor squeeze(const Tensor& x, int64_t dim) { return squeeze(x, Dims{normalize_dim(dim, x.ndim(), "squeeze")}); }

Tensor unsqueeze(const Tensor& x, int64_t dim) {
  const int at = normalize_dim(dim, x.ndim() + 1, "unsqueeze");
  return call_op(kUnsqueeze, Attrs::of(DimAttrs{at}), x);
}

}  // namespace tutti

TUTTI_OPS(squeeze, &kSqueeze, &kUnsqueeze)
