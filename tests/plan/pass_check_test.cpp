// The checks between passes: each fault is planted in groups or steps that are legal without it.
#include "tutti/plan/passes/pass_check.h"

#include <gtest/gtest.h>

#include <utility>

#include "tests/plan/support/graph_builder.h"
#include "tests/plan/support/internal_error.h"
#include "tutti/plan/passes/pipeline.h"

namespace tutti {
namespace {

using graph::BatchStep;
using graph::CallStep;
using graph::Graph;
using graph::Group;
using graph::KernelStep;
using graph::Pass;
using graph::PassState;
using graph::Step;
using graph::Value;
using plan_test::GraphBuilder;
using plan_test::internal_error_of;

// A function up to the last pass of a form.
class Built {
 public:
  explicit Built(const Graph& graph, graph::BuildOptions options = {.name = "f"})
      : options_(std::move(options)), state_{.graph = graph, .options = options_} {
    graph::run_passes(state_, graph::pipeline(), true);
  }
  const Graph& graph() const { return state_.graph; }
  std::vector<Group>& groups() { return state_.groups; }
  std::vector<Step>& steps() { return state_.steps; }
  std::string groups_fault() const {
    return internal_error_of([&] { graph::check_groups(state_.graph, state_.groups); });
  }
  std::string steps_fault() const {
    return internal_error_of([&] { graph::check_steps(state_.graph, state_.steps); });
  }

 private:
  const graph::BuildOptions options_;
  PassState state_;
};

#define EXPECT_SAYS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

const graph::BuildOptions kOneByOne{.name = "f", .fuse = {.fuse = false}, .batch = false};

// exp, then neg of it: two groups and two steps when nothing is fused.
Graph chain() {
  GraphBuilder g;
  const Value x = g.given({8});
  return g.with_results({g.call("neg", {g.call("exp", {x}, {8})}, {8})});
}

// neg of x, then x itself is written.
Graph read_before_write() {
  GraphBuilder g;
  const Value x = g.given({8}), y = g.given({8});
  const Value before = g.call("neg", {x}, {8});
  g.write("add_", {x, y});
  return g.with_results({before});
}

// Two kernels of other sizes, which can share a launch.
Graph two_kernels() {
  GraphBuilder g;
  const Value x = g.given({8}), y = g.given({6});
  return g.with_results({g.call("exp", {x}, {8}), g.call("neg", {y}, {6})});
}

Graph product() {
  GraphBuilder g;
  const Value a = g.given({16, 16}), b = g.given({16, 16});
  const Value made =
      g.call("matmul", {g.call("exp", {a}, {16, 16}), b}, {16, 16}, find_op("matmul").samples()[0].attrs);
  return g.with_results({g.call("tanh", {made}, {16, 16})});
}

// ---- groups

TEST(GroupCheck, ANodeIsInNoGroup) {
  Built f(chain());
  f.groups()[0].nodes.pop_back();
  EXPECT_SAYS(f.groups_fault(), "node 1 (neg) is in no group");
}

TEST(GroupCheck, ANodeIsInTwoGroups) {
  Built f(chain(), kOneByOne);
  f.groups()[1].nodes = {0};
  EXPECT_SAYS(f.groups_fault(), "node 0 (exp) is in group 0 and in group 1");
}

TEST(GroupCheck, AGroupStandsBeforeOneItDependsOn) {
  Built f(chain(), kOneByOne);
  std::swap(f.groups()[0], f.groups()[1]);
  EXPECT_SAYS(f.groups_fault(), "node 1 (neg) in group 0 runs before node 0 (exp) in group 1, on which it depends");
}

TEST(GroupCheck, ANodeStandsBeforeOneOfItsKernelThatItReads) {
  Built f(chain());
  ASSERT_EQ(f.groups().size(), 1u);
  std::swap(f.groups()[0].nodes[0], f.groups()[0].nodes[1]);
  EXPECT_SAYS(f.groups_fault(), "node 1 (neg) in group 0 runs before node 0 (exp) in group 0");
}

TEST(GroupCheck, AWriteStandsBeforeAReadOfWhatItOverwrites) {
  Built f(read_before_write(), kOneByOne);
  std::swap(f.groups()[0], f.groups()[1]);
  EXPECT_SAYS(f.groups_fault(), "node 1 (add_) in group 0 runs before node 0 (neg)");
}

TEST(GroupCheck, AKernelIsAttachedOnTheWrongSide) {
  Built f(product(), {.name = "f", .epilogues = graph::Epilogues::all});
  ASSERT_EQ(f.groups().size(), 1u);
  std::swap(f.groups()[0].prologue, f.groups()[0].epilogue);
  EXPECT_SAYS(f.groups_fault(), "node 1 (matmul) in group 0 runs before node 0 (exp) in group 0");
}

// ---- steps

TEST(StepCheck, AStepReadsWhatALaterOneWrites) {
  Built f(chain(), kOneByOne);
  std::swap(f.steps()[0], f.steps()[1]);
  EXPECT_SAYS(f.steps_fault(), "step 0: node 1 (neg) reads b1:f32[8], and version -1 was written last");
}

TEST(StepCheck, AStepReadsAVersionThatIsGone) {
  Built f(read_before_write(), kOneByOne);
  std::swap(f.steps()[0], f.steps()[1]);
  EXPECT_SAYS(f.steps_fault(), "step 1: node 0 (neg) reads b0:f32[8], and version 1 was written last");
}

TEST(StepCheck, AStepIsMissing) {
  Built f(two_kernels(), kOneByOne);
  f.steps().pop_back();
  EXPECT_SAYS(f.steps_fault(), "node 1 (neg) is in no step");
}

TEST(StepCheck, AStepRunsTwice) {
  Built f(two_kernels(), kOneByOne);
  f.steps().push_back(f.steps()[0]);
  EXPECT_SAYS(f.steps_fault(), "node 0 (exp) is in step 0 and in step 2");
}

TEST(StepCheck, AKernelReadsBytesThatNobodyWrote) {
  Built f(chain(), kOneByOne);
  std::get<KernelStep>(f.steps()[1]).operands[0].byte_offset += 4;
  EXPECT_SAYS(f.steps_fault(), "step 1: neg reads bytes 4 to 36 of b1, of which 0 to 32 are written");
}

TEST(StepCheck, AKernelWritesBehindItsBuffer) {
  Built f(chain(), kOneByOne);
  std::get<KernelStep>(f.steps()[1]).operands[1].byte_offset += 4;
  EXPECT_SAYS(f.steps_fault(), "step 1: neg writes bytes 4 to 36 of b2, which has 32");
}

TEST(StepCheck, ACallReadsItsFirstOperandThatNobodyMakes) {
  Built f(product());
  std::get<CallStep>(f.steps()[0]).prologue.reset();
  EXPECT_SAYS(f.steps_fault(), "step 0: node 1 (matmul) reads b2:f32[16, 16], and version -1 was written last");
}

TEST(StepCheck, AKernelOfABatchReadsWhatAnotherWrites) {
  Built f(two_kernels());
  ASSERT_EQ(f.steps().size(), 1u);
  BatchStep& batch = std::get<BatchStep>(f.steps()[0]);
  batch.kernels[1].operands[0] = batch.kernels[0].operands[1];
  EXPECT_SAYS(f.steps_fault(), "step 0: neg touches buffer b2 at once with another kernel of the batch");
}

TEST(StepCheck, AKernelOfABatchWritesMemoryOfTheCallerBehindOneThatCanFail) {
  GraphBuilder g;
  const Value x = g.given({8}), y = g.given({6}), z = g.given({6});
  const Value made = g.call("exp", {x}, {8});
  g.write("add_", {y, z});
  Built f(g.with_results({made}));
  ASSERT_EQ(f.steps().size(), 1u);
  std::get<BatchStep>(f.steps()[0]).kernels[0].reporter = 0;
  EXPECT_SAYS(f.steps_fault(), "step 0: add_ writes b1 of the caller at once with exp, which can fail");
}

// A check of whole buffers would refuse it.

TEST(StepCheck, HalvesOfOneBufferAreWrittenInOneBatch) {
  GraphBuilder g;
  const Value y = g.given({16}), z = g.given({8});
  Value half = y;
  half.sizes = {8};
  Value other = g.write("add_", {half, z});
  other.offset = 8;
  g.write("mul_", {other, z});
  Built f(g.with_results({}));
  ASSERT_EQ(f.steps().size(), 1u) << graph::to_string(f.steps());
  EXPECT_EQ(f.steps_fault(), "no error");
}

}  // namespace
}  // namespace tutti
