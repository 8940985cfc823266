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

static Answer time_of(const std::function<at::Tensor()>& call, const at::Tensor& want) {
  const double error = ((call().to(at::kDouble) - want).abs() / (1e-5 * (1 + want.abs()))).max().item<double>();
  return {measure([&] { call(); }), error, ""};
}

static std::optional<Answer> run(const Case& c) {
  if (c.dtype != "f32") return std::nullopt;
  const std::vector<int64_t> sizes(c.sizes.begin(), c.sizes.end());
  if (c.op == "gemm" && c.layout == "kn") {
    const at::Tensor a = random({sizes[0], sizes[2]}), b = random({sizes[2], sizes[1]});
    return time_of([&] { return at::mm(a, b); }, at::mm(a.to(at::kDouble), b.to(at::kDouble)));
  }
  const at::Tensor a = random(sizes), b = random(sizes), x = a.to(at::kDouble);
  if (c.op == "add") return time_of([&] { return at::add(a, b); }, x + b.to(at::kDouble));
  if (c.op == "scale") return time_of([&] { return at::mul(a, 0.5); }, x * 0.5);
  if (c.op == "exp") return time_of([&] { return at::exp(a); }, x.exp());
  if (c.op == "sum_rows") return time_of([&] { return at::sum(a, 0); }, x.sum(0));
  return std::nullopt;
}

int main(int argc, char** argv) {
  at::set_num_threads(argc > 1 ? std::atoi(argv[1]) : 1);
  const c10::InferenceMode without_gradients;
  return serve(TORCH_VERSION, at::get_cpu_capability(), run);
}
