// The suite `plan` links Tutti::plan and what is below it: that it links is the proof that graphs, passes and the
// executor need neither autograd nor capture nor distributed tensors.
#include <gtest/gtest.h>

#include "tests/plan/support/graph_builder.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/unary.h"
#include "tutti/plan/executable.h"

namespace tutti {
namespace {

using graph::Value;

// What a graph reads, as a call hands it in.
std::vector<graph::GivenMemory> memory_of(std::initializer_list<Tensor> tensors) {
  std::vector<graph::GivenMemory> memory;
  for (const Tensor& t : tensors) memory.push_back({t.storage(), t.offset() * itemsize(t.dtype())});
  return memory;
}

TEST(PlanLink, AnExecutableRunsWithoutAutogradAndCapture) {
  plan_test::GraphBuilder g;
  const Extents sizes{48, 48};
  const Value a = g.given(sizes), b = g.given(sizes), total = g.given({10}), step = g.given({10});
  const Value scaled = g.call("mul", {g.call("exp", {a}, sizes), b}, sizes);
  const Value product = g.call("matmul", {scaled, b}, sizes, find_op("matmul").samples()[0].attrs);
  const Value result = g.call("tanh", {product}, sizes);
  g.write("add_", {total, g.call("neg", {step}, {10})});
  g.phase = TracePhase::backward;
  const graph::Graph program = g.with_results({result, g.call("mul", {result, scaled}, sizes)});

  const Tensor x = facets::sample_tensor(1, sizes), y = facets::sample_tensor(2, sizes);
  const Tensor delta = facets::sample_tensor(3, {10});
  const Tensor sum = facets::sample_tensor(4, {10}), expected_sum = facets::sample_tensor(4, {10});
  const Tensor eager_scaled = mul(exp(x), y), eager_result = tanh(matmul(eager_scaled, y));
  add_(expected_sum, neg(delta));

  const graph::Executable executable(program, {.name = "f"});
  EXPECT_LT(executable.statistics().launches, 3) << executable.to_string();
  EXPECT_TRUE(executable.writes_given());
  const std::vector<Tensor> results = executable.run(memory_of({x, y, sum, delta}));
  ASSERT_EQ(results.size(), 2u);
  expect_same_bits(results[0], eager_result, "tanh(matmul(exp(x) * y, y))");
  expect_same_bits(results[1], mul(eager_result, eager_scaled), "the result times what the product reads");
  expect_same_bits(sum, expected_sum, "what is written in place");
}

}  // namespace
}  // namespace tutti
