// Lesson 2: what the tape does, and how to remember less of it.
// Last line of output: recomputed gradients have the same bits: yes
#include <cstdio>
#include <cstring>
#include <iostream>

#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/ops.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/rank_context.h"

using namespace tutti;

// Ten layers that keep the size of x.
Tensor deep(Tensor x, const Tensor& w) {
  for (int layer = 0; layer < 10; ++layer) x = silu(matmul(x, w));
  return x;
}

struct Result {
  Tensor gradient;
  double peak_mib;
};

Result gradient_of(const Tensor& x, const Tensor& w, bool remember_less) {
  Allocator& allocator = RankContext::current().allocator();
  allocator.reset_peak();
  const int64_t before = allocator.statistics().current_bytes;
  requires_grad_(w);
  set_grad(w, {});
  // A checkpointed region keeps only its inputs; backward runs it again.
  const auto region = [w](std::span<const Tensor> inputs) { return deep(inputs[0], w); };
  Tensor y = x;
  for (int part = 0; part < 4; ++part) y = remember_less ? checkpoint(region, {&y, 1}) : deep(y, w);
  backward(mean(y * y));
  return {grad_of(w), static_cast<double>(allocator.statistics().peak_bytes - before) / (1 << 20)};
}

int main() {
  // Gradients of gradients: d/dx x^3 = 3 x^2, and once more 6 x.
  const Tensor x[] = {Tensor::of<float>({1, 2, 3})};
  requires_grad_(x[0]);
  const Tensor cube[] = {sum(x[0] * x[0] * x[0])};
  const Tensor slope[] = {sum(grad(cube, x, {}, {.create_graph = true})[0])};
  std::cout << "second derivative of x^3 at 1, 2, 3: " << grad(slope, x)[0] << std::endl;

  // A hook sees the cotangent of a value on its way back.
  const Tensor y = x[0] * 2.0;
  register_hook(y, [](const Tensor& cotangent) {
    std::cout << "the hook saw " << cotangent << std::endl;
    return Tensor{};  // undefined: leave it as it is
  });
  backward(sum(y * y));

  const Tensor input = normal({256, 256}, random_key("input")), w = normal({256, 256}, random_key("w"), 0.0, 0.1);
  const Result kept = gradient_of(input, w, false), again = gradient_of(input, w, true);
  std::printf("peak memory: %.1f MiB with everything kept, %.1f MiB with recomputation\n", kept.peak_mib,
              again.peak_mib);
  const bool same =
      std::memcmp(kept.gradient.raw_data(), again.gradient.raw_data(), static_cast<size_t>(w.nbytes())) == 0;
  std::printf("recomputed gradients have the same bits: %s\n", same ? "yes" : "no");
}
