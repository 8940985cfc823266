// Lesson 10: a differentiable function with a gradient of one's own. Rounding has slope zero almost everywhere, so
// nothing could be learned through it; the straight-through estimator lets the cotangent pass as if nothing had been
// rounded. Here it trains weights that are used in steps of one eighth, in a compiled function, and anomaly mode finds
// a NaN.
// Last line of output: weights in eighths: 0.75 -0.5, loss 0.000000
#include <cstdio>

#include "tutti/autograd/anomaly.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/function.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"

using namespace tutti;

int main() {
  const autograd::Function round_to_eighths(
      "round_to_eighths",
      [](autograd::FunctionContext&, std::span<const Tensor> in) -> std::vector<Tensor> {
        return {round(in[0] * 8) * 0.125};
      },
      [](const autograd::FunctionContext&, std::span<const Tensor> grads) -> std::vector<Tensor> {
        return {grads[0]};
      });

  const Tensor x = uniform({64, 2}, random_key("points"), -1.0, 1.0);
  const Tensor target = matmul(x, Tensor::of<float>({0.75f, -0.5f}, {2, 1}));
  const Tensor w = requires_grad_(zeros({2, 1}));
  const auto gradient = compile(
      [&](const Tensor& points, const Tensor& wanted) {
        const Tensor error = matmul(points, round_to_eighths(w)) - wanted;
        const Tensor loss[] = {mean(error * error)}, leaves[] = {w};
        return std::pair{detach(loss[0]), grad(loss, leaves)[0]};
      },
      {.name = "rounded regression"});
  double loss = 0;
  for (int step = 0; step < 100; ++step) {
    const auto [value, g] = gradient(x, target);
    loss = value.item();
    const NoGradScope no_grad;
    w -= 0.3 * g;
  }

  try {
    const AnomalyScope scope;
    backward(sum(sqrt(w * 0) * 0));  // sqrt has an infinite slope at 0
  } catch (const NanError& error) {
    std::printf("%s\n", error.what());
  }
  const Tensor used = round_to_eighths(detach(w));
  std::printf("weights in eighths: %g %g, loss %.6f\n", used[0].item(), used[1].item(), loss);
}
