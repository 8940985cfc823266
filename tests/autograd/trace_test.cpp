// What events of ops say about autograd: phase, node of the tape, module.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/trace/profiler.h"

namespace tutti {
namespace {

struct AutogradTrace : testing::Test {
  void start() { ASSERT_TRUE(profiler.start({.filter = TraceFilter::this_thread, .memory = false}).ok()); }
  std::vector<TraceEvent> ops() {
    profiler.stop();
    std::vector<TraceEvent> found;
    for (const TraceHarvest::Thread& thread : profiler.trace().threads) {
      for (int64_t i = 0; i < thread.size; ++i) {
        if ((*thread.log)[i].category == TraceCategory::op) found.push_back((*thread.log)[i]);
      }
    }
    return found;
  }
  static std::string module_of(const TraceEvent& e) { return e.context.place ? e.context.place->module_path : ""; }
  Profiler profiler;
};

TEST_F(AutogradTrace, GradientsBelongToTheModuleAndNodeOfTheirOp) {
  const Tensor x = Tensor::of<float>({1, 2});
  requires_grad_(x);
  start();
  Tensor y;
  {
    const ModuleScope module("encoder");
    y = exp(x);
  }
  backward(sum(y));
  int64_t node = -1;
  bool found = false;
  for (const TraceEvent& e : ops()) {
    if (std::string("exp") == e.name) {
      EXPECT_EQ(e.context.phase, TracePhase::forward);
      EXPECT_EQ(module_of(e), "encoder");
      node = e.context.sequence;
    } else if (e.context.phase == TracePhase::backward && e.context.sequence == node) {
      EXPECT_EQ(module_of(e), "encoder");
      found = true;
    }
  }
  EXPECT_GE(node, 0);
  EXPECT_TRUE(found);
}

TEST_F(AutogradTrace, WhatIsComputedAgainIsBackwardInTheSameModule) {
  const Tensor x = Tensor::of<float>({1, 2});
  requires_grad_(x);
  start();
  Tensor y;
  {
    const ModuleScope module("block");
    y = checkpoint(
        [](std::span<const Tensor> inputs) {
          const ModuleScope inner("mlp");
          return exp(inputs[0]);
        },
        std::span(&x, 1));
  }
  backward(sum(y));
  std::vector<TracePhase> phases;
  for (const TraceEvent& e : ops()) {
    if (std::string("exp") != e.name) continue;
    phases.push_back(e.context.phase);
    EXPECT_EQ(module_of(e), "block.mlp");
  }
  EXPECT_EQ(phases, (std::vector<TracePhase>{TracePhase::forward, TracePhase::backward}));
}

TEST_F(AutogradTrace, GradientsAreThoseWithoutASession) {
  const auto gradient = [] {
    const Tensor x = Tensor::of<float>({0.3F, -2, 7});
    requires_grad_(x);
    backward(sum(mul(exp(x), x)));
    const Tensor g = grad_of(x);
    return std::vector<float>(g.data<float>(), g.data<float>() + g.numel());
  };
  const std::vector<float> plain = gradient();
  start();
  EXPECT_EQ(gradient(), plain);
}

}  // namespace
}  // namespace tutti
