// Training steps of modules and optimizers, packaged as a whole and continued.
#include <gtest/gtest.h>

#include "tests/package/support/packaged_cases.h"
#include "tutti/autograd/backward.h"
#include "tutti/nn/linear.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/statistics.h"
#include "tutti/optim/optimizer.h"

namespace tutti {
namespace {

using deploy::Package;
using package_test::for_this_processor;
using package_test::values;

struct Model : nn::Module {
  Tensor operator()(const Tensor& x) const { return down(gelu(up(x))); }
  nn::Child<nn::Linear> up{this, "up", 16, 24}, down{this, "down", 24, 8};
};

// The same model and optimizer twice: one runs, the package continues what the other has begun.
TEST(PackagedTraining, AModuleAndItsOptimizerContinue) {
  const testing::TemporaryFolder folder;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool adamw : {false, true}) {
      Model model;
      nn::initialize(model);
      model.to(dtype);
      const std::vector<nn::NamedParameter> parameters = model.named_parameters();
      const auto optimizer =
          adamw ? optim::make_adamw(parameters) : optim::make_sgd(parameters, {.momentum = 0.9, .weight_decay = 0.1});
      const auto loss_of = [&](const Tensor& x, const Tensor& y) {
        const Tensor miss = sub(cast(model(cast(x, dtype)), DType::f32), y);
        return mean(mul(miss, miss));
      };
      const auto lr = [](int64_t step) { return 0.1 / static_cast<double>(step); };
      const auto live = [&](int64_t step, const Tensor& x, const Tensor& y) {
        const Tensor loss = loss_of(x, y);
        backward(loss);
        optimizer->set_lr_factor(lr(step) / 1e-3);
        optimizer->step();
        optimizer->zero_grad();
        return detach(loss);
      };
      const auto packaged = [&](const Tensor& x, const Tensor& y) {
        const Tensor loss = loss_of(x, y);
        backward(loss);
        optimizer->update();
        optimizer->zero_grad();
        return detach(loss);
      };
      const auto x = [](int64_t step) { return values(static_cast<uint64_t>(100 + step), {5, 16}); };
      const auto y = [](int64_t step) { return values(static_cast<uint64_t>(200 + step), {5, 8}); };
      for (int64_t step = 1; step <= 4; ++step) live(step, x(step), y(step));
      PackageOptions options = for_this_processor("step");
      options.gradients = true;
      for (const optim::StateTensor& t : optimizer->update_tensors()) options.state.push_back({t.name, t.tensor});
      package(folder / "step", packaged, options, x(1), y(1));
      const auto opened = Package::open(folder / "step");
      const auto state = opened->new_state();
      for (int64_t step = 5; step <= 24; ++step) {
        const Tensor loss = live(step, x(step), y(step));
        for (const optim::StateTensor& n : optimizer->numbers()) state->write(n.name, n.tensor);
        const std::string where = fmt::format("step {} of {}, adamw {}", step, name_of(dtype), adamw);
        expect_same_bits(opened->run(*state, {{x(step), y(step)}})[0], loss, where);
      }
      for (const optim::StateTensor& t : optimizer->update_tensors())
        expect_same_bits(state->read(t.name), t.tensor, t.name);
    }
  }
}

}  // namespace
}  // namespace tutti
