// Lesson 11: a classifier made of modules: training with dropout, weight decay for matrices only, evaluation.
// Last line of output: 97 % or more of 1000 points are classified right
#include <algorithm>
#include <cstdio>

#include "tutti/autograd/backward.h"
#include "tutti/nn/activation.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/dropout.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/norm.h"
#include "tutti/ops.h"
#include "tutti/optim/optimizer.h"
#include "tutti/runtime/rank_context.h"

using namespace tutti;

struct Classifier : nn::Module {
  Classifier() {
    net->add<nn::Linear>(2, 64).add<nn::LayerNorm>(64).add<nn::ReLU>().add<nn::Dropout>(0.05);
    net->add<nn::Linear>(64, 64).add<nn::GELU>().add<nn::Linear>(64, 2);
  }
  Tensor forward(const Tensor& x) const { return net(x); }
  nn::Child<nn::Sequential> net{this, "net"};
};

Tensor points(const char* name, int64_t count, uint32_t step = 0) {
  return uniform({count, 2}, random_key(name, 0, step), -1.0, 1.0);
}

// Whether a point lies in the ring between the circles of radius 0.5 and 0.9.
Tensor labels_of(const Tensor& x) {
  const Tensor square = sum(x * x, 1);
  return cast((square > 0.25) & (square < 0.81), DType::i32);
}

int main() {
  seed_all(1);
  Classifier model;
  nn::initialize(model);
  std::printf("%lld parameters in %zu tensors\n", static_cast<long long>(model.parameter_count()),
              model.named_parameters().size());

  std::vector<optim::ParameterGroup<optim::AdamWOptions>> groups(2);
  groups[0].options = {.lr = 0.005, .weight_decay = 0.01};
  groups[1].options = {.lr = 0.005, .weight_decay = 0};
  for (const nn::NamedParameter& p : model.named_parameters())
    groups[p.parameter.sizes().size() == 2 ? 0 : 1].parameters.push_back(p);
  const auto optimizer = optim::make_adamw(groups);

  for (uint32_t step = 1; step <= 400; ++step) {
    const Tensor x = points("training", 256, step);
    const Tensor loss = mean(cross_entropy(model.forward(x), labels_of(x)));
    optimizer->zero_grad();
    backward(loss);
    optimizer->set_lr_factor(step <= 300 ? 1.0 : 0.1);
    optimizer->step();
    if (step % 100 == 0) std::printf("step %u  loss %.3f\n", step, loss.item());
  }

  const nn::EvalScope evaluating(model);  // no dropout
  const NoGradScope no_grad;
  const Tensor x = points("test", 1000);
  const double right = sum(cast(eq(argmax(model.forward(x), 1), cast(labels_of(x), DType::i64)), DType::f32)).item();
  std::printf("%s of 1000 points are classified right\n", right >= 970 ? "97 % or more" : "too few");
}
