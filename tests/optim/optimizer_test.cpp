#include "tutti/optim/optimizer.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "tests/support/message_of.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reduction.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/runtime/trace/profiler.h"

namespace tutti::optim {
namespace {

nn::Parameter parameter_of(const Tensor& values) {
  nn::Parameter p("w", values.extents(), nn::Init::zeros());
  p.assign(values);
  return p;
}
std::vector<nn::NamedParameter> one_parameter(std::vector<float> values) {
  return {{"w", parameter_of(Tensor::of<float>(values))}};
}

TEST(AdamW, FollowsThePaperOverThreeSteps) {
  const auto parameters = one_parameter({1.0f, -2.0f, 0.5f});
  const auto optimizer = make_adamw(parameters, {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1});
  double p[3] = {1.0, -2.0, 0.5}, m[3] = {}, v[3] = {};
  for (int step = 1; step <= 3; ++step) {
    const std::vector<float> g = {0.1f * static_cast<float>(step), -0.3f, 0.0f};
    const Tensor grads[] = {Tensor::of<float>(g)};
    optimizer->step(grads, 0.01, 0.5);
    for (int i = 0; i < 3; ++i) {
      const double gi = 0.5 * static_cast<double>(g[static_cast<size_t>(i)]);
      m[i] = 0.9 * m[i] + 0.1 * gi;
      v[i] = 0.95 * v[i] + 0.05 * gi * gi;
      p[i] -= 0.01 * 0.1 * p[i];
      p[i] -= 0.01 * (m[i] / (1 - std::pow(0.9, step))) / (std::sqrt(v[i] / (1 - std::pow(0.95, step))) + 1e-8);
    }
  }
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(parameters[0].parameter.master().data<float>()[i], p[i], 1e-6);
  EXPECT_EQ(optimizer->steps_taken(), 3);
}

TEST(AdamW, ACompiledStepKeepsToItsTensorsWhenTheProgramHasOthers) {
  std::vector<std::vector<float>> after;
  for (const bool compiled : {false, true}) {
    std::vector<nn::NamedParameter> parameters = one_parameter({1.0f, -2.0f, 0.5f});
    const Tensor first = parameters[0].parameter.master();
    const auto optimizer = make_adamw(parameters);
    if (compiled) optimizer->compile();
    for (int step = 0; step < 6; ++step) {
      if (step % 2 == 1) parameters = one_parameter({4.0f, 5.0f, 6.0f});
      const Tensor grads[] = {Tensor::of<float>({0.1f, static_cast<float>(step), 0.3f})};
      optimizer->step(grads, 0.1);
    }
    after.push_back({first.data<float>(), first.data<float>() + 3});
    EXPECT_EQ(optimizer->statistics().compiles, compiled ? 1 : 0);
  }
  EXPECT_EQ(after[0], after[1]);
}

TEST(Sgd, AddsMomentumAndDecay) {
  const auto parameters = one_parameter({1.0f});
  const auto optimizer = make_sgd(parameters, {.momentum = 0.9, .weight_decay = 0.5});
  const Tensor grads[] = {Tensor::of<float>({2.0f})};
  optimizer->step(grads, 0.1);
  EXPECT_FLOAT_EQ(parameters[0].parameter.master().data<float>()[0], 1.0f - 0.1f * 2.5f);
  optimizer->step(grads, 0.1);
  EXPECT_FLOAT_EQ(parameters[0].parameter.master().data<float>()[0],
                  0.75f - 0.1f * (0.9f * 2.5f + 2.0f + 0.5f * 0.75f));
}

TEST(Optimizer, NamesAParameterWithoutGradient) {
  const auto optimizer = make_adamw(one_parameter({1.0f}));
  const Tensor grads[] = {Tensor{}};
  try {
    optimizer->step(grads, 0.1);
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("'w'"), std::string::npos) << e.what();
  }
}

// The learning rate, the clipping and the count change at every step, and nothing is compiled again for them.
TEST(Optimizer, ACompiledStepHasTheBitsOfAnEagerOneAndIsOneLaunch) {
  const auto run = [](bool adamw, bool compiled) {
    std::vector<nn::NamedParameter> parameters;
    for (int i = 0; i < 40; ++i)
      parameters.push_back({fmt::format("w{}", i), parameter_of(facets::sample_tensor(static_cast<uint64_t>(i),
                                                                                      {i % 5 == 0 ? 3 : 100, i + 1}))});
    const auto optimizer =
        adamw ? make_adamw(parameters) : make_sgd(parameters, {.momentum = 0.9, .weight_decay = 0.1});
    if (compiled) optimizer->compile();
    for (int step = 0; step < 4; ++step) {
      std::vector<Tensor> grads;
      for (const nn::NamedParameter& p : parameters)
        grads.push_back(facets::sample_tensor(static_cast<uint64_t>(100 * step), p.parameter.sizes()));
      optimizer->step(grads, 0.1 / (step + 1), 1.0 - 0.1 * step);
    }
    if (compiled) {
      const CompileStatistics s = optimizer->statistics();
      EXPECT_EQ(s.compiles, 1);
      EXPECT_EQ(s.last.kernels, 40);
      EXPECT_EQ(s.last.launches, 1) << optimizer->explain();
    }
    std::vector<Tensor> all;
    for (const nn::NamedParameter& p : parameters) all.push_back(p.parameter.master());
    for (const StateTensor& s : optimizer->state()) all.push_back(s.tensor);
    return all;
  };
  for (const bool adamw : {true, false}) {
    const std::vector<Tensor> eager = run(adamw, false), compiled = run(adamw, true);
    for (size_t i = 0; i < eager.size(); ++i)
      EXPECT_EQ(std::memcmp(eager[i].raw_data(), compiled[i].raw_data(), static_cast<size_t>(eager[i].nbytes())), 0)
          << i;
  }
}

TEST(Optimizer, StepsWithAccumulatedGradientsAndForgetsThem) {
  std::vector<std::vector<float>> after;
  for (const bool compiled : {false, true}) {
    const nn::Parameter used = parameter_of(Tensor::of<float>({1.0f, 2.0f})),
                        unused = parameter_of(Tensor::of<float>({5.0f}));
    const auto optimizer = make_sgd({{"used", used}, {"unused", unused}}, {.lr = 0.5, .weight_decay = 0.1});
    if (compiled) optimizer->compile();
    for (int step = 0; step < 3; ++step) {
      backward(sum(mul(used, used)));
      backward(sum(used));  // gradients add up
      optimizer->step();
      optimizer->zero_grad();
      EXPECT_FALSE(used.grad().defined());
    }
    after.push_back({used.master().data<float>()[0], used.master().data<float>()[1], unused.master().data<float>()[0]});
  }
  double x = 1.0;
  for (int step = 0; step < 3; ++step) x -= 0.5 * (2 * x + 1 + 0.1 * x);
  EXPECT_NEAR(after[0][0], x, 1e-6);
  EXPECT_EQ(after[0][2], 5.0f);  // no gradient: not even decay
  EXPECT_EQ(after[0], after[1]);
}

TEST(Optimizer, GroupsHaveLearningRatesAndDecayOfTheirOwn) {
  const nn::Parameter a = parameter_of(Tensor::of<float>({1.0f})), b = parameter_of(Tensor::of<float>({1.0f}));
  const auto optimizer = make_sgd(std::vector<ParameterGroup<SgdOptions>>{
      {{{"a", a}}, {.lr = 0.1, .weight_decay = 0.5}}, {{{"b", b}}, {.lr = 0.2}}});
  a.set_grad(Tensor::of<float>({1.0f})), b.set_grad(Tensor::of<float>({1.0f}));
  optimizer->set_lr_factor(0.5);
  optimizer->step();
  EXPECT_FLOAT_EQ(a.master().data<float>()[0], 1.0f - 0.05f * 1.5f);
  EXPECT_FLOAT_EQ(b.master().data<float>()[0], 1.0f - 0.1f);
  // In explicit form the first group's rate is given, and the second keeps its ratio.
  a.assign(Tensor::of<float>({1.0f})), b.assign(Tensor::of<float>({1.0f}));
  const Tensor grads[] = {Tensor::of<float>({1.0f}), Tensor::of<float>({1.0f})};
  optimizer->step(grads, 1.0);
  EXPECT_FLOAT_EQ(a.master().data<float>()[0], 1.0f - 1.5f);
  EXPECT_FLOAT_EQ(b.master().data<float>()[0], 1.0f - 2.0f);
}

TEST(Optimizer, LeavesFrozenParametersOutAndRefusesOneTwice) {
  const nn::Parameter a = parameter_of(Tensor::of<float>({1.0f})), frozen = parameter_of(Tensor::of<float>({1.0f}));
  frozen.requires_grad_(false);
  const auto optimizer = make_adamw({{"a", a}, {"frozen", frozen}});
  EXPECT_EQ(optimizer->parameters().size(), 1u);
  EXPECT_EQ(optimizer->state().size(), 2u);
  try {
    make_adamw({{"a", a}, {"alias", a}});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_STREQ(e.what(), "optimizer: parameter 'alias' is given twice; every parameter belongs to one group");
  }
}

// The number of kernels that cast while `work` runs.
template <class Work>
int casts(Work work) {
  Profiler profiler;
  EXPECT_TRUE(profiler.start({.filter = TraceFilter::this_thread, .memory = false}).ok());
  work();
  profiler.stop();
  int count = 0;
  for (const TraceHarvest::Thread& thread : profiler.trace().threads) {
    for (int64_t i = 0; i < thread.size; ++i) {
      const TraceEvent& event = (*thread.log)[i];
      if (event.kernel == nullptr) continue;
      for (const KernelOp& op : event.kernel->info.ops) count += op.name == "copy_";
    }
  }
  return count;
}

TEST(Optimizer, LeavesOneCastPerStepHoweverOftenAParameterIsUsed) {
  const nn::Parameter p = parameter_of(full({1000}, 1.0));
  p.set_use_dtype(DType::bf16);
  const auto optimizer = make_sgd({{"w", p}});
  const auto step = [&] {
    for (int shard = 0; shard < 4; ++shard) backward(sum(mul(p.use(), p.use())));
    optimizer->step();
    optimizer->zero_grad();
  };
  step();
  EXPECT_EQ(casts(step), 1);
}

TEST(Optimizer, SkipsAParameterThatWasFrozenAfterwards) {
  const nn::Parameter a = parameter_of(Tensor::of<float>({1.0f})), b = parameter_of(Tensor::of<float>({1.0f}));
  const auto optimizer = make_sgd({{"a", a}, {"b", b}}, {.lr = 0.5});
  backward(sum(mul(a, b)));
  b.requires_grad_(false);
  optimizer->step();
  EXPECT_EQ(a.master().item(), 0.5);
  EXPECT_EQ(b.master().item(), 1.0);
  const Tensor grads[] = {Tensor::of<float>({1.0f}), Tensor()};
  optimizer->step(grads, 0.5);
  EXPECT_EQ(a.master().item(), 0.0);
  EXPECT_EQ(b.master().item(), 1.0);
}

TEST(Optimizer, RefusesOptionsOutOfRange) {
  const auto parameters = one_parameter({1.0f});
  const double nan = std::nan(""), infinite = INFINITY;
  const std::pair<AdamWOptions, const char*> adamw[] = {
      {{.lr = -1}, "adamw: lr is -1; expected a finite number in [0, inf)"},
      {{.lr = nan}, "adamw: lr is nan"},
      {{.lr = infinite}, "adamw: lr is inf"},
      {{.beta1 = 1}, "adamw: beta1 is 1; expected a finite number in [0, 1)"},
      {{.beta2 = -0.1}, "adamw: beta2 is -0.1"},
      {{.eps = -1e-8}, "adamw: eps is -1e-08"},
      {{.weight_decay = nan}, "adamw: weight_decay is nan"}};
  for (const auto& [options, text] : adamw)
    EXPECT_NE(message_of([&] { make_adamw(parameters, options); }).find(text), std::string::npos) << text;
  const std::pair<SgdOptions, const char*> sgd[] = {{{.lr = nan}, "sgd: lr is nan"},
                                                    {{.momentum = -0.5}, "sgd: momentum is -0.5"},
                                                    {{.weight_decay = -1}, "sgd: weight_decay is -1"}};
  for (const auto& [options, text] : sgd)
    EXPECT_NE(message_of([&] { make_sgd(parameters, options); }).find(text), std::string::npos) << text;
}

TEST(Optimizer, RefusesParametersItCannotUpdate) {
  const nn::Parameter wide("w", {4}, nn::Init::zeros(), DType::f64);
  EXPECT_NE(
      message_of([&] { make_sgd({{"layer.w", wide}}); }).find("the master of parameter 'layer.w' is f64; expected f32"),
      std::string::npos);
}

TEST(Optimizer, AStepThatIsRefusedChangesNothing) {
  for (const bool compiled : {false, true}) {
    const nn::Parameter a = parameter_of(Tensor::of<float>({1.0f})), b = parameter_of(Tensor::of<float>({1.0f, 2.0f}));
    const auto optimizer = make_adamw({{"a", a}, {"b", b}});
    if (compiled) optimizer->compile();
    const Tensor one = Tensor::of<float>({1.0f}), two = Tensor::of<float>({1.0f, 2.0f});
    const auto step = [&](const Tensor& of_b, double lr, double scale) {
      return message_of([&] { optimizer->step(std::array{one, of_b}, lr, scale); });
    };
    EXPECT_NE(step(one, 0.1, 1).find("the gradient of parameter 'b' is"), std::string::npos);
    EXPECT_NE(step(cast(two, DType::f64), 0.1, 1).find("expected [2] f32"), std::string::npos);
    EXPECT_NE(step(two, -0.1, 1).find("the learning rate is -0.1"), std::string::npos);
    EXPECT_NE(step(two, 0.1, std::nan("")).find("grad_scale is nan; expected a finite number"), std::string::npos);
    EXPECT_EQ(a.master().item(), 1.0);
    EXPECT_EQ(optimizer->steps_taken(), 0);
    EXPECT_EQ(step(two, 0.1, 1), "no error");
    EXPECT_EQ(optimizer->steps_taken(), 1);
  }
}

TEST(Optimizer, AStepInPiecesHasTheBitsOfAStep) {
  std::vector<float> values(1000), gradient(1000);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.01f * static_cast<float>(i) - 3.0f, gradient[i] = 1.0f / static_cast<float>(i + 1);
  const Tensor grads[] = {Tensor::of<float>(gradient)};
  for (const bool is_sgd : {false, true}) {
    const auto make = [&](const std::vector<nn::NamedParameter>& p) {
      return is_sgd ? make_sgd(p, SgdOptions{.momentum = 0.9, .weight_decay = 0.1}) : make_adamw(p, AdamWOptions{});
    };
    const auto whole = one_parameter(values), pieces = one_parameter(values);
    const auto a = make(whole), b = make(pieces);
    EXPECT_EQ(b->states_per_parameter(), is_sgd ? 1u : 2u);
    for (int64_t step = 1; step <= 3; ++step) {
      a->step(grads, 0.1, 0.5);
      b->check_step(grads, 0.1, 0.5);
      b->begin_step(step, 0.1, 0.5);
      for (const int64_t begin : {700, 0, 333}) {  // in any order
        const int64_t end = begin == 0 ? 333 : begin == 333 ? 700 : 1000;
        const auto part = [&](const Tensor& t) { return t.view_as({end - begin}, {1}, t.offset() + begin); };
        std::vector<Tensor> state;
        for (const StateTensor& of : b->state()) state.push_back(part(of.tensor));
        b->step_piece(0, part(pieces[0].parameter.master()), part(grads[0]), state);
      }
    }
    EXPECT_EQ(b->steps_taken(), 3);
    EXPECT_EQ(std::memcmp(whole[0].parameter.master().data<float>(), pieces[0].parameter.master().data<float>(), 4000),
              0);
    for (size_t k = 0; k < a->state().size(); ++k)
      EXPECT_EQ(std::memcmp(a->state()[k].tensor.data<float>(), b->state()[k].tensor.data<float>(), 4000), 0);
  }
}

TEST(Optimizer, APieceIsRefusedWhereAStepIs) {
  const auto optimizer = make_adamw(one_parameter({1.0f, 2.0f}));
  const Tensor grads[] = {Tensor()};
  EXPECT_NE(message_of([&] { optimizer->check_step(grads, 0.1, 1.0); }).find("parameter 'w' has no gradient"),
            std::string::npos);
}

TEST(Optimizer, KeepsItsStateInTheMemoryThatItIsGiven) {
  const Tensor m = Tensor::of<float>({1.0f, 2.0f}), v = Tensor::of<float>({3.0f, 4.0f});
  std::vector<std::string> asked;
  const auto optimizer =
      make_adamw(one_parameter({1.0f, 2.0f}), AdamWOptions{}, [&](const nn::NamedParameter& p, std::string_view what) {
        asked.push_back(p.name + "." + std::string(what));
        return what == "exp_avg" ? m : v;
      });
  EXPECT_EQ(asked, (std::vector<std::string>{"w.exp_avg", "w.exp_avg_sq"}));
  EXPECT_EQ(optimizer->state()[0].tensor.data<float>()[1], 2.0f);  // values stay
  const Tensor grads[] = {Tensor::of<float>({5.0f, 5.0f})};
  optimizer->step(grads, 0.1);
  EXPECT_NE(m.data<float>()[0], 1.0f);
}

TEST(GradNorm, DoesNotDependOnHowGradientsAreCut) {
  std::vector<float> values(100'003);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<float>(i)) * std::pow(10.0f, static_cast<float>(i % 30) - 15.0f);
  const Tensor whole[] = {Tensor::of<float>(values)};
  const Tensor parts[] = {Tensor::of<float>(std::vector<float>(values.begin() + 777, values.end())),
                          Tensor::of<float>(std::vector<float>(values.begin(), values.begin() + 777))};
  EXPECT_EQ(norm_of(square_sum(whole)), norm_of(square_sum(parts)));
}

TEST(GradNorm, ScalesDownToTheLargestNormOnly) {
  EXPECT_EQ(clip_scale(0.5f, 1.0), 1.0);
  EXPECT_NEAR(clip_scale(4.0f, 1.0), 0.25, 1e-6);
  EXPECT_EQ(clip_scale(4.0f, 0.0), 1.0);
}

}  // namespace
}  // namespace tutti::optim
