#include "tutti/ops/add_in_order.h"

#include <algorithm>
#include <cstdint>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/pointwise/pointwise.h"

namespace tutti {
namespace {

// As many as a kernel reads at once; longer lists take several calls.
constexpr size_t kMaxTensors = 8;

void infer(const OpCall& call, OutputMetas& out) {
  TUTTI_CHECK(!call.inputs.empty(), "add_in_order: the list of tensors is empty; give at least one");
  TUTTI_CHECK(call[0].dtype() != DType::boolean, "add_in_order: the tensors are {}; cast them to an integer dtype",
              name_of(call[0].dtype()));
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    TUTTI_CHECK(call[i].dtype() == call[0].dtype() && call[i].sizes() == call[0].sizes(),
                "add_in_order: tensor {} is {}, tensor 0 is {}; sizes and dtypes must agree", i, describe(call[i]),
                describe(call[0]));
  }
  out.add(call[0].dtype(), call[0].sizes());
}

double rounded(double x, DType dtype) {
  unsigned char bytes[8];
  store_from_double(bytes, dtype, x);
  return load_as_double(bytes, dtype);
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const DType dtype = call[0].dtype();
  const size_t count = call.inputs.size();
  pointwise::run_map(
      {outputs[0], call.inputs, compute_dtype(dtype)},
      [&](const double* v) {
        double sum = v[0];
        for (size_t i = 1; i < count; ++i) sum = rounded(sum + v[i], dtype);
        return sum;
      },
      [&](const int64_t* v) {
        uint64_t sum = 0;
        for (size_t i = 0; i < count; ++i) sum += static_cast<uint64_t>(v[i]);
        return static_cast<int64_t>(sum);
      });
}

void build(RecipeBuilder& b) {
  const DType dtype = b.output_dtypes[0];
  Expr sum = b.in(0);
  for (size_t i = 1; i < b.call.inputs.size(); ++i) {
    sum = sum + b.in(static_cast<int>(i));
    if (is_floating(dtype)) sum = stored(sum, dtype);
  }
  b.out(sum);
}

void vjp(const VjpCall& c, std::span<Tensor> grads) {
  for (Tensor& grad : grads) grad = c.grads[0];
}

std::string sharding(const OpCall& call) { return facets::pointwise_sharding(call, "| | lin"); }

std::vector<Sample> samples() {
  const auto x = [](uint64_t seed, const Extents& sizes, DType dtype = DType::f32) {
    return facets::sample_tensor(seed, sizes, dtype);
  };
  const Tensor large = Tensor::of<float>({4096.0f, -4096.0f, 1.0f}), small = Tensor::of<float>({1e-4f, 3e-4f, 1e-8f}),
               back = Tensor::of<float>({-4096.0f, 4096.0f, -1.0f});
  return {{"three", {x(1, {3, 5}), x(2, {3, 5}), x(3, {3, 5})}, {}},
          {"order_matters", {large, small, back}, {}},
          {"one", {x(4, {7})}, {}},
          {"eight_bf16",
           {x(5, {33}, DType::bf16), x(6, {33}, DType::bf16), x(7, {33}, DType::bf16), x(8, {33}, DType::bf16),
            x(9, {33}, DType::bf16), x(10, {33}, DType::bf16), x(11, {33}, DType::bf16), x(12, {33}, DType::bf16)},
           {}},
          {"f16", {x(13, {5}, DType::f16), x(14, {5}, DType::f16), x(15, {5}, DType::f16)}, {}},
          {"f64", {x(16, {2, 2}, DType::f64), x(17, {2, 2}, DType::f64), x(18, {2, 2}, DType::f64)}, {}},
          {"i64", {x(19, {4}, DType::i64), x(20, {4}, DType::i64), x(21, {4}, DType::i64)}, {}},
          {"strided", {facets::strided_copy(x(22, {3, 4})), x(23, {3, 4}), x(24, {3, 4})}, {}},
          {"empty", {x(25, {0, 4}), x(26, {0, 4}), x(27, {0, 4})}, {}},
          {"scalar", {x(28, {}), x(29, {}), x(30, {})}, {}}};
}

const OpDef kAddInOrder{
    .name = "add_in_order",
    .num_inputs = -1,
    .infer = infer,
    .reference = reference,
    .gradient = {.vjp = vjp},
    .recipe = {.build = build, .variant = [](const OpCall& call) { return static_cast<uint64_t>(call.inputs.size()); }},
    .sharding = sharding,
    .samples = samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

}  // namespace

Tensor add_in_order(std::span<const Tensor> tensors) {
  if (tensors.size() <= kMaxTensors) return apply1(kAddInOrder, tensors);
  std::vector<Tensor> list(tensors.begin(), tensors.begin() + kMaxTensors);
  Tensor sum = apply1(kAddInOrder, list);
  for (size_t begin = kMaxTensors; begin < tensors.size(); begin += kMaxTensors - 1) {
    const size_t end = std::min(begin + kMaxTensors - 1, tensors.size());
    list.assign({sum});
    list.insert(list.end(), tensors.begin() + static_cast<std::ptrdiff_t>(begin),
                tensors.begin() + static_cast<std::ptrdiff_t>(end));
    sum = apply1(kAddInOrder, list);
  }
  return sum;
}

}  // namespace tutti

TUTTI_OPS(add_in_order, &kAddInOrder)
