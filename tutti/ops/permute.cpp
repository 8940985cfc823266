#include "tutti/ops/permute.h"

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti {
namespace {

struct PermuteAttrs {
  Dims order;
  static constexpr auto fields() { return field_list(field::number<&PermuteAttrs::order>("order")); }
};

void infer_permute(const OpCall& call, OutputMetas& out) {
  Shape sizes;
  for (const int64_t d : call.attrs.as<PermuteAttrs>().order) sizes.push_back(call[0].sizes()[static_cast<size_t>(d)]);
  out.add(call[0].dtype(), sizes);
}

Tensor permute_view(const OpCall& call) {
  Extents sizes, strides;
  for (const int64_t d : call.attrs.as<PermuteAttrs>().order) {
    sizes.push_back(call[0].extents()[static_cast<size_t>(d)]);
    strides.push_back(call[0].strides()[static_cast<size_t>(d)]);
  }
  return call[0].view_as(sizes, strides, call[0].offset());
}

void permute_reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Dims& order = call.attrs.as<PermuteAttrs>().order;
  facets::for_each_index(outputs[0].extents(), [&](const Extents& at) {
    Extents source(order.size(), 0);
    for (size_t k = 0; k < order.size(); ++k) source[static_cast<size_t>(order[k])] = at[k];
    facets::move_element(outputs[0], at, call[0], source);
  });
}

void permute_vjp(const VjpCall& c, std::span<Tensor> grads) {
  const Dims& order = c.attrs.as<PermuteAttrs>().order;
  Dims inverse(order.size(), 0);
  for (size_t k = 0; k < order.size(); ++k) inverse[static_cast<size_t>(order[k])] = static_cast<int64_t>(k);
  grads[0] = permute(c.grads[0], inverse);
}

std::string permute_sharding(const OpCall& call) {
  std::string out;
  for (const int64_t d : call.attrs.as<PermuteAttrs>().order) out += static_cast<char>('a' + d);
  return fmt::format("x[{}] -> y[{}] | | id", facets::dim_letters(call[0].ndim()), out);
}

std::vector<Sample> permute_samples() {
  std::vector<Sample> samples;
  const auto add = [&](const char* name, const Tensor& x, const Dims& order) {
    samples.push_back({name, {x}, Attrs::of(PermuteAttrs{order})});
  };
  add("transpose", facets::sample_tensor(1, {3, 5}), {1, 0});
  add("three_dims", facets::sample_tensor(2, {2, 3, 7}), {2, 0, 1});
  add("strided_bf16", facets::strided_copy(facets::sample_tensor(3, {4, 1, 3}, DType::bf16)), {1, 2, 0});
  add("empty", facets::sample_tensor(4, {0, 3}), {1, 0});
  add("scalar", facets::sample_tensor(5, {}), {});
  add("i64", facets::sample_tensor(6, {3, 2}, DType::i64), {1, 0});
  return samples;
}

const OpDef kPermute{
    .name = "permute",
    .num_inputs = 1,
    .infer = infer_permute,
    .reference = permute_reference,
    .gradient = {.vjp = permute_vjp},
    .view = permute_view,
    .sharding = permute_sharding,
    .samples = permute_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

}  // namespace

Tensor permute(const Tensor& x, const Dims& order) {
  TUTTI_CHECK_EQ(order.ndim(), x.ndim(), "permute: the order has another number of dims than {}", describe(x));
  Dims normalized;
  uint32_t seen = 0;
  for (const int64_t d : order) {
    const int n = normalize_dim(d, x.ndim(), "permute");
    TUTTI_CHECK(!(seen >> n & 1), "permute: dim {} is named twice in the order for {}", d, describe(x));
    seen |= 1u << n;
    normalized.push_back(n);
  }
  return call_op(kPermute, Attrs::of(PermuteAttrs{normalized}), x);
}

Tensor transpose(const Tensor& x, int64_t dim0, int64_t dim1) {
  const int a = normalize_dim(dim0, x.ndim(), "transpose"), b = normalize_dim(dim1, x.ndim(), "transpose");
  Dims order;
  for (int d = 0; d < x.ndim(); ++d) order.push_back(d == a ? b : d == b ? a : d);
  return call_op(kPermute, Attrs::of(PermuteAttrs{order}), x);
}

Tensor t(const Tensor& x) {
  TUTTI_CHECK(x.ndim() >= 2, "t: {} has fewer than two dims", describe(x));
  return transpose(x, -2, -1);
}

}  // namespace tutti

TUTTI_OPS(permute, &kPermute)
