// Lesson 8: a function of several ops becomes one kernel, and its backward another, with the bits of an eager run.
// Last line of output: same bits
#include <cstdio>
#include <cstring>

#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"

using namespace tutti;

Tensor gated(const Tensor& x, const Tensor& gate, const Tensor& weight) {
  return rms_norm(x + silu(gate) * x, weight, 1e-6);
}

// The result and the gradient of x.
std::vector<Tensor> run(const auto& function) {
  const Tensor x = uniform({64, 256}, random_key("x"), -1.0, 1.0),
               gate = uniform({64, 256}, random_key("gate"), -1.0, 1.0);
  requires_grad_(x);
  const Tensor y = function(x, gate, ones({256}));
  backward(sum(y * y));
  return {detach(y), grad_of(x)};
}

int main() {
  const auto compiled = compile(gated, {.name = "gated"});
  const std::vector<Tensor> a = run(gated), b = run(compiled);
  const CompileStatistics s = compiled.statistics();
  std::printf("forward: %d ops in %d kernels; backward: %d ops in %d kernels\n", static_cast<int>(s.last.nodes),
              static_cast<int>(s.last.kernels), static_cast<int>(s.last_backward.nodes),
              static_cast<int>(s.last_backward.kernels));
  bool same = true;
  for (size_t i = 0; i < a.size(); ++i)
    same = same && std::memcmp(a[i].raw_data(), b[i].raw_data(), static_cast<size_t>(a[i].nbytes())) == 0;
  std::printf("%s\n", same ? "same bits" : "different bits");
}
