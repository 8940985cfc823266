// Fits a line with gradient descent. Last line of output: "w 2.000 b 1.000".
#include <cstdio>
#include <iostream>

#include "tutti/tutti.h"

int main() {
  using namespace tutti;
  const Tensor x = Tensor::of<float>({-2, -1, 0, 1, 2}), y = 2 * x + 1;
  const Tensor w = requires_grad_(zeros({})), b = requires_grad_(zeros({}));
  for (int step = 0; step < 200; ++step) {
    const Tensor error = w * x + b - y;
    backward(mean(error * error));
    const NoGradScope no_grad;
    for (const Tensor& parameter : {w, b}) {
      parameter -= 0.1 * grad_of(parameter);
      set_grad(parameter, {});
    }
  }
  std::cout << "prediction " << w * x + b << "\n";
  std::printf("w %.3f b %.3f\n", w.item(), b.item());
}
