#include "tutti/train/survival/survival.h"

#include <gtest/gtest.h>

#include "tutti/nn/linear.h"
#include "tutti/ops/creation.h"
#include "tutti/optim/optimizer.h"
#include "tutti/train/checkpoint/checkpoint_state.h"

namespace tutti::train {
namespace {

std::vector<float> values_of(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.numel()}; }

TEST(Survival, OfARunThatEndsWithItsRanksKeepsNothing) {
  nn::Linear model(2, 2);
  const auto survival = make_survival(nullptr, nullptr, {}, model, 0);
  EXPECT_FALSE(survival->holds_state());
  EXPECT_EQ(survival->master_memory(), nullptr);
  EXPECT_EQ(survival->state_memory(), nullptr);
  nn::initialize(model);
  const auto optimizer = optim::make_sgd(model.named_parameters(), {.lr = 1});
  EXPECT_FALSE(survival->recover(*optimizer).has_value());
  survival->begin(TrainState{.step = 3}, *optimizer, {});
  survival->note_save(3);
  survival->note_over();
  EXPECT_FALSE(survival->is_begun());
  EXPECT_FALSE(survival->is_over());
  EXPECT_FALSE(survival->is_replaced());
  EXPECT_EQ(survival->begun_save(), 0);
  EXPECT_EQ(state_left_in(nullptr), "");
}

TEST(Survival, OfARunThatEndsWithItsRanksStepsTheOptimizer) {
  const auto stepped = [](const auto& step) {
    nn::Linear model(2, 2);
    nn::initialize(model);
    const auto optimizer = optim::make_sgd(model.named_parameters(), {.lr = 1});
    std::vector<Tensor> gradients;
    for (const nn::NamedParameter& p : optimizer->parameters())
      gradients.push_back(full(p.parameter.stored().sizes(), 2.0));
    step(model, *optimizer, gradients);
    return values_of(optimizer->parameters()[0].parameter.stored());
  };
  const auto with =
      stepped([](const nn::Module& model, optim::Optimizer& optimizer, std::span<const Tensor> gradients) {
        make_survival(nullptr, nullptr, {}, model, 0)
            ->step(gradients, {.step = 1, .lr = 0.5, .grad_scale = 0.25}, optimizer, {});
      });
  const auto without = stepped([](const nn::Module&, optim::Optimizer& optimizer, std::span<const Tensor> gradients) {
    optimizer.step(gradients, 0.5, 0.25);
  });
  EXPECT_EQ(with, without);
}

}  // namespace
}  // namespace tutti::train
