// Lesson 15: a mixture of experts that learns a function, its loads balanced by a bias instead of a loss.
// Last line of output: the largest load fell from more than 1.5 to less than 1.2 times the mean, and the error by more than half
#include <algorithm>
#include <cstdio>
#include <vector>

#include "tutti/autograd/backward.h"
#include "tutti/nn/moe.h"
#include "tutti/ops.h"
#include "tutti/optim/expert_balance.h"
#include "tutti/optim/optimizer.h"
#include "tutti/runtime/rank_context.h"

using namespace tutti;

int main() {
  seed_all(1);
  nn::MoE layer({.dim = 8,
                 .hidden_dim = 16,
                 .router = {.num_experts = 8,
                            .top_k = 2,
                            .score_func = nn::ScoreFunction::softmax,
                            .route_norm = true,
                            .init = nn::Init::normal(0.5)},
                 .init = nn::Init::normal(0.3)});
  nn::initialize(layer);
  const auto optimizer = optim::make_adamw(layer.named_parameters(), {.lr = 0.01});

  double first_load = 0, load = 0, first_error = 0, error = 0;
  for (uint32_t step = 1; step <= 300; ++step) {
    const Tensor x = uniform({256, 8}, random_key("x", 0, step), -1.0, 1.0), wanted = sin(x * 3.0);
    const Tensor difference = layer.forward(x) - wanted, loss = mean(difference * difference);
    optimizer->zero_grad();
    backward(loss);

    // What the forward has counted moves the biases, and the count begins anew.
    const Tensor counts = layer.tokens_per_expert.use();
    const std::vector<int64_t> tokens(counts.data<int64_t>(), counts.data<int64_t>() + counts.numel());
    optim::balance_experts(layer.gate->expert_bias.use(), tokens, 0.005);
    zero_(counts);
    optimizer->step();

    load = static_cast<double>(*std::max_element(tokens.begin(), tokens.end())) / (256.0 * 2 / 8);
    error = loss.item();
    if (step == 1) first_load = load, first_error = error;
    if (step % 100 == 0 || step == 1)
      std::printf("step %u  loss %.4f  largest load %.2f times the mean\n", step, error, load);
  }
  const bool is_done = first_load > 1.5 && load < 1.2 && error < first_error / 2;
  std::printf(
      "%s\n",
      is_done
          ? "the largest load fell from more than 1.5 to less than 1.2 times the mean, and the error by more than half"
          : "something else happened");
}
