// Which memory the steps of a plan may write: state, arguments that are declared as written, nothing else.
#include <gtest/gtest.h>

#include "tests/plan/support/graph_builder.h"
#include "tutti/deploy/package_error.h"
#include "tutti/deploy/plan.h"
#include "tutti/plan/passes/pipeline.h"
#include "tutti/runtime/trace/trace_event.h"

namespace tutti {
namespace {

using deploy::Plan;
using deploy::PlanSource;

constexpr int64_t kBytes = 8 * 4;

// Adds source 1 to source 0: by a kernel, or by a call of the op.
Plan adding(PlanSource to, bool is_kernel) {
  plan_test::GraphBuilder g;
  const graph::Value a = g.given({8}), b = g.given({8});
  const graph::Value sum = g.write("add_", {a, b});
  const graph::BuildOptions options{.name = "f"};
  graph::PassState state{.graph = g.with_results({sum}), .options = options};
  run_passes(state);
  EXPECT_EQ(state.steps.size(), 1u);
  auto& kernel = std::get<graph::KernelStep>(state.steps[0]);
  if (kernel.trace == nullptr) kernel.trace = &intern_kernel({.kernel_id = kernel.spec.name});
  Plan plan{.buffers = state.graph.buffers,
            .sources = {to, {PlanSource::Kind::argument, 1}},
            .steps = state.steps,
            .results = state.graph.results,
            .reporters = {}};
  if (!is_kernel) {
    graph::Value before = sum;
    before.version = 0;
    plan.steps = {graph::CallStep{
        .node = -1, .op = &find_op("add_"), .attrs = {}, .inputs = {before, b}, .outputs = {sum}, .copy_first = {}}};
  }
  return plan;
}

std::string outcome(const Plan& plan, const deploy::PlanMemory& memory) {
  try {
    check_plan(plan, memory);
  } catch (const deploy::PackageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(PlanCheck, OnlyStateAndDeclaredArgumentsAreWritten) {
  using Kind = PlanSource::Kind;
  for (const bool is_kernel : {true, false}) {
    for (const bool is_declared : {true, false}) {
      const deploy::PlanMemory memory{
          .arguments = {kBytes, kBytes}, .constants = {kBytes}, .state = {kBytes}, .written = {is_declared, false}};
      EXPECT_EQ(outcome(adding({Kind::state, 0}, is_kernel), memory), "accepted");
      EXPECT_NE(outcome(adding({Kind::constant, 0}, is_kernel), memory), "accepted");
      EXPECT_NE(outcome(adding({Kind::argument, 1}, is_kernel), memory), "accepted");
      EXPECT_EQ(outcome(adding({Kind::argument, 0}, is_kernel), memory) == "accepted", is_declared);
    }
  }
}

// What no buffer and no step names is read as well when a plan is made ready.
TEST(PlanCheck, NothingThatIsNotUsedIsThere) {
  const deploy::PlanMemory memory{
      .arguments = {kBytes, kBytes}, .constants = {}, .state = {kBytes}, .written = {true, false}};
  const Plan good = adding({PlanSource::Kind::state, 0}, true);
  ASSERT_EQ(outcome(good, memory), "accepted");
  Plan source = good;
  source.sources.push_back({PlanSource::Kind::argument, 1 << 28});
  EXPECT_NE(outcome(source, memory).find("it reads memory 268435456 of 2"), std::string::npos);
  Plan control = good;
  control.controls.emplace_back();
  EXPECT_NE(outcome(control, memory).find("it has control flow that no step is"), std::string::npos);
  Plan launch = good;
  launch.steps.push_back(graph::BatchStep{});
  EXPECT_NE(outcome(launch, memory).find("a launch has no kernels"), std::string::npos);
}

TEST(PlanCheck, StateIsNotLargerThanItsMemory) {
  using Kind = PlanSource::Kind;
  for (const bool is_kernel : {true, false}) {
    for (const int32_t index : {-1, 1, 1 << 30}) {
      const deploy::PlanMemory memory{
          .arguments = {kBytes, kBytes}, .constants = {}, .state = {kBytes}, .written = {true, true}};
      EXPECT_NE(outcome(adding({Kind::state, index}, is_kernel), memory), "accepted");
      EXPECT_NE(outcome(adding({Kind::argument, index == 1 ? 2 : index}, is_kernel), memory), "accepted");
    }
    const deploy::PlanMemory small{
        .arguments = {kBytes, kBytes}, .constants = {}, .state = {kBytes - 4}, .written = {false, false}};
    EXPECT_NE(outcome(adding({Kind::state, 0}, is_kernel), small), "accepted");
  }
}

}  // namespace
}  // namespace tutti
