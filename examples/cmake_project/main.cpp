// Fits a line with gradient descent. Last line of output: "w 2.000 b 1.000".
#include <cstdio>

#include "tutti/autograd/backward.h"
#include "tutti/ops.h"

int main() {
  using namespace tutti;
  const Tensor x = Tensor::of<float>({-2, -1, 0, 1, 2}), y = add(mul(x, 2.0), 1.0);
  Tensor w = zeros({}), b = zeros({});
  for (int step = 0; step < 200; ++step) {
    requires_grad_(w);
    requires_grad_(b);
    const Tensor error = sub(add(mul(x, w), b), y);
    backward(mean(mul(error, error)));
    const Tensor dw = grad_of(w), db = grad_of(b);
    w = sub(detach(w), mul(dw, 0.1));
    b = sub(detach(b), mul(db, 0.1));
  }
  std::printf("w %.3f b %.3f\n", w.item(), b.item());
}
