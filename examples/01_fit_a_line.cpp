// Lesson 1: a module, its gradient, an optimizer.
// Last line of output: y = 2.00 x + 1.00
#include <cstdio>

#include "tutti/autograd/backward.h"
#include "tutti/nn/module.h"
#include "tutti/ops.h"
#include "tutti/optim/optimizer.h"

using namespace tutti;

struct Line : nn::Module {
  nn::Parameter slope = register_parameter("slope", {}, nn::Init::normal(1.0));
  nn::Parameter offset = register_parameter("offset", {}, nn::Init::ones());
  Tensor forward(const Tensor& x) const { return slope * x + offset; }
};

int main() {
  const Tensor x = Tensor::of<float>({-2, -1, 0, 1, 2}), y = Tensor::of<float>({-3, -1, 1, 3, 5});
  Line line;
  nn::initialize(line);  // a function of the seed and the parameter's name
  const auto optimizer = optim::make_sgd(line.named_parameters(), {.lr = 0.05, .momentum = 0.5});
  for (int step = 1; step <= 100; ++step) {
    const Tensor error = line.forward(x) - y, loss = mean(error * error);
    optimizer->zero_grad();
    backward(loss);
    optimizer->step();
    if (step % 25 == 0) std::printf("step %3d  loss %.6f\n", step, loss.item());
  }
  std::printf("y = %.2f x + %.2f\n", line.slope.master().item(), line.offset.master().item());
}
