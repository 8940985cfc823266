// The suite `deploy` links Tutti::deploy and what is below it: that it links is the proof that packages run without
// autograd, capture and LLVM.
#include <gtest/gtest.h>

#include "tests/plan/support/graph_builder.h"
#include "tests/support/same_bits.h"
#include "tutti/deploy/plan_runner.h"
#include "tutti/deploy/plan_words.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/unary.h"
#include "tutti/plan/passes/pipeline.h"

namespace tutti {
namespace {

using deploy::Plan;

TEST(DeployLink, APlanThatWasReadRunsWithoutAutogradAndCapture) {
  plan_test::GraphBuilder g;
  const Extents sizes{48, 48};
  const graph::Value a = g.given(sizes), b = g.given(sizes);
  const graph::Value scaled = g.call("mul", {g.call("exp", {a}, sizes), b}, sizes);
  const graph::Value product = g.call("matmul", {scaled, b}, sizes, find_op("matmul").samples()[0].attrs);
  const graph::Value result = g.call("tanh", {product}, sizes);
  const graph::BuildOptions options{.name = "f"};
  graph::PassState state{.graph = g.with_results({result, g.call("mul", {result, scaled}, sizes)}), .options = options};
  run_passes(state);
  Plan plan{.buffers = state.graph.buffers,
            .sources = {{deploy::PlanSource::Kind::argument, 0}, {deploy::PlanSource::Kind::argument, 1}},
            .steps = state.steps,
            .results = state.graph.results,
            .reporters = {}};
  for (graph::Step& step : plan.steps) {
    if (auto* call = std::get_if<graph::CallStep>(&step)) call->node = -1;
  }
  for_each_kernel(plan, [](graph::KernelStep& kernel) {
    if (kernel.trace == nullptr) kernel.trace = &intern_kernel({.kernel_id = kernel.spec.name});
  });
  deploy::TextTable texts;
  deploy::KernelSpecs specs;
  const deploy::Words words = to_words(plan, texts, specs);
  Plan read = deploy::plan_of_words(words, texts.texts());
  EXPECT_EQ(to_words(read, texts, specs), words);
  deploy::check_plan(
      read, {.arguments = {48 * 48 * 4, 48 * 48 * 4}, .constants = {}, .state = {}, .written = {false, false}});
  for_each_kernel(read, [](graph::KernelStep& kernel) { kernel.kernel = &codegen::kernel_for(kernel.spec); });

  const Tensor x = facets::sample_tensor(1, sizes), y = facets::sample_tensor(2, sizes);
  const Tensor eager_scaled = mul(exp(x), y), eager_result = tanh(matmul(eager_scaled, y));
  const std::vector<Tensor> results = deploy::PlanRunner(std::move(read)).run({{x, y}});
  ASSERT_EQ(results.size(), 2u);
  expect_same_bits(results[0], eager_result, "tanh(matmul(exp(x) * y, y))");
  expect_same_bits(results[1], mul(eager_result, eager_scaled), "the result times what the product reads");
}

}  // namespace
}  // namespace tutti
