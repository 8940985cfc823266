// Lesson 18: a training step goes into a file after 5 steps; the package continues the run with the same bits.
// Last line of output: same losses in steps 6 to 15
#include <cstdio>
#include <filesystem>

#include "tutti/autograd/backward.h"
#include "tutti/deploy/package.h"
#include "tutti/nn/linear.h"
#include "tutti/ops.h"
#include "tutti/optim/optimizer.h"
#include "tutti/package/package.h"

using namespace tutti;

int main() {
  nn::Linear model(8, 1);
  nn::initialize(model);
  const auto optimizer = optim::make_adamw(model.named_parameters(), {.lr = 0.01});
  const auto x_of = [](int64_t number) {
    return uniform({16, 8}, random_key("x", 0, static_cast<uint32_t>(number)), -1.0, 1.0);
  };
  const auto y_of = [&](int64_t number) { return sum(x_of(number), {.dims = {1}, .keepdim = true}); };
  const auto loss_of = [&](const Tensor& x, const Tensor& y) {
    const Tensor miss = sub(model.forward(x), y);
    return mean(mul(miss, miss));
  };
  const auto step = [&](const Tensor& x, const Tensor& y) {
    const Tensor loss = loss_of(x, y);
    backward(loss);
    optimizer->update();
    optimizer->zero_grad();
    return detach(loss);
  };
  const auto train = [&](int64_t number) {
    optimizer->begin_step(number, 0.01, 1.0);
    return step(x_of(number), y_of(number)).item();
  };
  for (int64_t number = 1; number <= 5; ++number) train(number);

  const std::string path = (std::filesystem::temp_directory_path() / "tutti_lesson_18.tutti").string();
  PackageOptions options{.name = "step", .gradients = true};
  for (const optim::StateTensor& t : optimizer->update_tensors()) options.state.push_back({t.name, t.tensor});
  package(path, step, options, x_of(0), y_of(0));

  const auto opened = deploy::Package::open(path);
  const std::shared_ptr<deploy::PackageState> state = opened->new_state();
  bool same = true;
  for (int64_t number = 6; number <= 15; ++number) {
    const double live = train(number);
    for (const optim::StateTensor& n : optimizer->numbers()) state->write(n.name, n.tensor);
    const double packaged = opened->run(*state, {{x_of(number), y_of(number)}})[0].item();
    std::printf("step %lld: loss %.6f\n", static_cast<long long>(number), packaged);
    same = same && packaged == live;
  }
  std::filesystem::remove(path);
  std::printf("%s\n", same ? "same losses in steps 6 to 15" : "different losses");
}
