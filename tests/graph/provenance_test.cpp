// What events of compiled kernels say about where they come from.
#include "tutti/plan/provenance.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tests/graph/support/same.h"
#include "tutti/autograd/backward.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"
#include "tutti/runtime/trace/profiler.h"

namespace tutti {
namespace {

using graph_test::expect_same;
using graph_test::values;

// Kernels and extern calls while `body` runs.
template <class Body>
std::vector<TraceEvent> kernels_of(Body body) {
  Profiler profiler;
  EXPECT_TRUE(profiler.start({.filter = TraceFilter::this_thread, .memory = false}).ok());
  body();
  profiler.stop();
  std::vector<TraceEvent> found;
  for (const TraceHarvest::Thread& thread : profiler.trace().threads) {
    for (int64_t i = 0; i < thread.size; ++i) {
      if ((*thread.log)[i].kernel != nullptr) found.push_back((*thread.log)[i]);
    }
  }
  return found;
}

Tensor layer(const Tensor& a, const Tensor& b, const Tensor& c) {
  const ModuleScope outer("layers", 3);
  const Tensor product = [&] {
    const ModuleScope module("gate");
    return mul(a, b);
  }();
  const ModuleScope module("up");
  return gelu(add(product, c));
}

TEST(Provenance, AFusedKernelNamesItsOpsLinesAndCommonModule) {
  const Tensor a = values({37, 19}, 1), b = values({37, 19}, 2), c = values({19}, 3);
  const auto f = compile(layer, {.name = "layer"});
  f(a, b, c);  // captured before anybody profiles
  const std::vector<TraceEvent> kernels = kernels_of([&] { f(a, b, c); });
  ASSERT_EQ(kernels.size(), 1u);
  const KernelInfo& info = kernels[0].kernel->info;
  ASSERT_GE(info.ops.size(), 3u);
  EXPECT_EQ(info.ops[0].name, "mul");
  EXPECT_EQ(info.ops[1].name, "add");
  EXPECT_LT(info.ops[0].node, info.ops[1].node);
  EXPECT_EQ(info.module_path, "layers.3");
  EXPECT_EQ(info.phase, TracePhase::forward);
  EXPECT_EQ(info.graph_key.substr(0, 5), "layer");
  EXPECT_EQ(info.kernel_id.substr(0, 8), "mul+add+");
  ASSERT_GE(info.stack.size(), 3u);
  for (const std::string& line : info.stack) EXPECT_NE(line.find("provenance_test.cpp:"), std::string::npos) << line;
  EXPECT_GE(info.flops, 3 * 37 * 19);
  EXPECT_EQ(info.specialization, "sizes=[37, 19]");
}

TEST(Provenance, BackwardAndCallsKnowPhaseModuleAndGraph) {
  const Tensor x = values({8, 16}, 1), w = values({16, 4}, 2);
  requires_grad_(w);
  const auto step = compile(
      [w](const Tensor& input) {
        Tensor loss;
        {
          const ModuleScope module("head");
          loss = sum(gelu(matmul(input, w)));
        }
        const Tensor outputs[] = {loss}, inputs[] = {w};
        return grad(outputs, inputs)[0];
      },
      {.name = "step"});
  step(x);
  int forward = 0, backward = 0;
  for (const TraceEvent& e : kernels_of([&] { step(x); })) {
    if (e.category != TraceCategory::extern_call) continue;
    ++(e.context.phase == TracePhase::backward ? backward : forward);
    ASSERT_NE(e.context.place, nullptr);
    EXPECT_EQ(e.context.place->module_path, "head");
    ASSERT_NE(e.context.graph_key, nullptr);
    EXPECT_EQ(std::string(e.context.graph_key).substr(0, 4), "step");
  }
  EXPECT_EQ(forward, 1);
  EXPECT_EQ(backward, 1);
}

TEST(Provenance, ProfilingChangesNeitherCompilationNorBits) {
  const Tensor a = values({37, 19}, 1), b = values({37, 19}, 2), c = values({19}, 3);
  const auto f = compile(layer);
  Tensor during;
  kernels_of([&] { during = f(a, b, c); });
  expect_same(during, layer(a, b, c));
  f(a, b, c);
  EXPECT_EQ(f.statistics().compiles, 1);
}

// The text of line "file:number (...)" of this file.
std::string text_of(const std::string& line) {
  const size_t colon = line.find(':');
  std::ifstream file(TUTTI_SOURCE_DIR "/tests/graph/provenance_test.cpp");
  std::string text;
  for (int n = std::stoi(line.substr(colon + 1)); n > 0; --n) std::getline(file, text);
  return text;
}

TEST(Provenance, KernelsNameTheLineThatCalledTheOp) {
  const auto f = compile([](const Tensor& x, const Tensor& w) {
    const Tensor product = matmul(x, w);
    const Tensor normed = softmax(product, -1);
    return cumsum(normed, 0);
  });
  const Tensor x = values({6, 8}, 1), w = values({8, 4}, 2);
  requires_grad_(x);
  const std::vector<TraceEvent> kernels = kernels_of([&] { backward(sum(f(x, w))); });
  std::set<std::string> named;
  for (const TraceEvent& event : kernels) {
    const std::string key = event.kernel->info.graph_key == "eager" && event.context.graph_key != nullptr
                                ? event.context.graph_key
                                : event.kernel->info.graph_key;
    if (key == "eager") continue;  // the sum outside
    const std::vector<std::string>& stack =
        event.kernel->info.stack.empty() && event.context.place ? event.context.place->stack : event.kernel->info.stack;
    ASSERT_FALSE(stack.empty()) << event.name;
    const std::string first = event.kernel->info.ops[0].name, op = first.substr(0, first.find("_backward"));
    for (const char* call : {"matmul", "softmax", "cumsum"}) {
      if (op != call) continue;
      EXPECT_NE(text_of(stack[0]).find(call), std::string::npos)
          << event.name << " names " << stack[0] << ": " << text_of(stack[0]);
      named.insert(op + (event.context.phase == TracePhase::backward || event.kernel->info.phase == TracePhase::backward
                             ? "'"
                             : ""));
    }
  }
  for (const char* op : {"matmul", "matmul'", "softmax", "softmax'", "cumsum"}) EXPECT_TRUE(named.count(op)) << op;
}

}  // namespace
}  // namespace tutti
