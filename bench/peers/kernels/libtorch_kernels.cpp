// Kernels of PyTorch called from C++, where small calls cost what the library costs and no interpreter. Cases on stdin,
// answers on stdout (peer.h), without gradients; it links the libtorch of the pip package (programs.py,
// build_libtorch()). libtorch_kernels THREADS
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/version.h>

#include "bench/peers/kernels/peer.h"

using namespace tutti::bench;
using namespace tutti::bench::peers;

static at::Tensor random(at::IntArrayRef sizes) { return at::rand(sizes) * 2 - 1; }

// `rounding`: what each element may be away from `want`.
static Answer time_of(const std::function<at::Tensor()>& call, const at::Tensor& want, const at::Tensor& rounding) {
  const double error = ((call().to(at::kDouble) - want).abs() / rounding).max().item<double>();
  return {measure([&] { call(); }), error, ""};
}

static Answer pointwise(const std::function<at::Tensor()>& call, const at::Tensor& want) {
  return time_of(call, want, 1e-5 * (1 + want.abs()));
}

// As product_error(): against a millionth of the sum of absolute values.
static Answer product(const Case& c) {
  const at::Tensor a = random({c.sizes[0], c.sizes[2]});
  const at::Tensor b = c.layout == "kn" ? random({c.sizes[2], c.sizes[1]}) : random({c.sizes[1], c.sizes[2]}).t();
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return time_of([&] { return at::mm(a, b); }, at::mm(x, y), 1e-6 * at::mm(x.abs(), y.abs()));
}

static std::optional<Answer> run(const Case& c) {
  if (c.dtype != "f32") return std::nullopt;
  if (c.op == "gemm") return c.layout == "packed" ? std::nullopt : std::optional(product(c));
  const std::vector<int64_t> sizes(c.sizes.begin(), c.sizes.end());
  if (c.op == "add") {
    const at::Tensor a = random(sizes), b = random(sizes);
    return pointwise([&] { return at::add(a, b); }, a.to(at::kDouble) + b.to(at::kDouble));
  }
  if (c.op == "scale") {
    const at::Tensor a = random(sizes);
    return pointwise([&] { return at::mul(a, 0.5); }, a.to(at::kDouble) * 0.5);
  }
  if (c.op == "sum_rows") {
    const at::Tensor a = random(sizes), x = a.to(at::kDouble);
    return time_of([&] { return at::sum(a, 0); }, x.sum(0), 1e-6 * x.abs().sum(0));
  }
  if (c.op == "exp") {
    const at::Tensor a = random(sizes);
    return pointwise([&] { return at::exp(a); }, a.to(at::kDouble).exp());
  }
  return std::nullopt;
}

int main(int argc, char** argv) {
  at::set_num_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  const c10::InferenceMode without_gradients;
  return serve(TORCH_VERSION, at::get_cpu_capability(), run);
}
