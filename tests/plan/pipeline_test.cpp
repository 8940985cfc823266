// The list of passes: its names and their order, the check behind each of them, and the dumps that name them.
#include "tutti/plan/passes/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "tests/plan/support/graph_builder.h"
#include "tests/plan/support/internal_error.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

namespace tutti {
namespace {

using graph::Graph;
using graph::Pass;
using graph::PassState;
using graph::Value;
using plan_test::GraphBuilder;
using plan_test::internal_error_of;

// A forward and a backward that recomputes, a product with kernels on both sides, a write in place, and two kernels
// that can share a launch: every pass runs on it.
Graph sample_graph() {
  GraphBuilder g;
  const Value a = g.given({32, 32}), b = g.given({32, 32}), total = g.given({10}), step = g.given({10});
  const Value once = g.call("exp", {a}, {32, 32}), again = g.call("exp", {a}, {32, 32});
  g.call("neg", {b}, {32, 32});
  const Value product =
      g.call("matmul", {g.call("mul", {once, again}, {32, 32}), b}, {32, 32}, find_op("matmul").samples()[0].attrs);
  const Value result = g.call("tanh", {product}, {32, 32});
  g.write("add_", {total, g.call("neg", {step}, {10})});
  const Value kept = g.call("sin", {b}, {32, 32});
  g.phase = TracePhase::backward;
  return g.with_results({result, g.call("mul", {kept, b}, {32, 32})});
}

graph::BuildOptions every_pass() {
  return {
      .name = "f", .collectives = {.bucket_bytes = 1 << 20, .join_products = true}, .epilogues = graph::Epilogues::all};
}

TEST(Pipeline, ReadsAloud) {
  std::vector<std::string> names;
  for (const Pass& pass : graph::pipeline()) names.emplace_back(pass.name);
  EXPECT_EQ(names, (std::vector<std::string>{"merge_equal", "remove_unused", "partition", "remove_unused",
                                             "bucket_collectives", "join_products", "merge_siblings",
                                             "schedule_collectives", "name_lines", "fuse", "attach_epilogues",
                                             "attach_prologues", "make_steps", "batch"}));
}

TEST(Pipeline, FormsFollowEachOther) {
  const auto passes = graph::pipeline();
  EXPECT_TRUE(
      std::is_sorted(passes.begin(), passes.end(), [](const Pass& x, const Pass& y) { return x.form < y.form; }));
}

TEST(Pipeline, EveryPassLeavesSomethingLegal) {
  const graph::BuildOptions options = every_pass();
  PassState state{.graph = sample_graph(), .options = options};
  graph::run_passes(state, graph::pipeline(), true);
  EXPECT_EQ(state.statistics.merged, 1);
  EXPECT_EQ(state.statistics.partition.recomputed, 1);
  EXPECT_EQ(state.statistics.unused, 2) << "the negation, and the sine that the backward computes again";
  EXPECT_EQ(state.statistics.prologues, 1);
  EXPECT_EQ(state.statistics.epilogues, 1);
  const auto is_batch = [](const graph::Step& s) { return std::holds_alternative<graph::BatchStep>(s); };
  EXPECT_EQ(std::count_if(state.steps.begin(), state.steps.end(), is_batch), 1) << graph::to_string(state.steps);
}

TEST(Pipeline, PassesThatNobodyAskedForDoNotRun) {
  const graph::BuildOptions options{
      .name = "f", .collectives = {.under_way_bytes = 0}, .fuse = {.fuse = false}, .batch = false};
  PassState state{.graph = sample_graph(), .options = options};
  std::string left_out;
  for (const Pass& pass : graph::pipeline()) {
    if (pass.when == nullptr || pass.when(state)) pass.run(state);
    else left_out += std::string(pass.name) + " ";
  }
  EXPECT_EQ(left_out, "bucket_collectives join_products schedule_collectives attach_epilogues attach_prologues batch ");
}

// A pass whose result is broken right after it.
struct Broken {
  void (*run)(PassState&) = nullptr;
  bool has_run = false;
} broken;

// Swaps a node, a group or a step with one that it depends on.
void break_state(PassState& state, Pass::Form form) {
  if (form == Pass::Form::graph) {
    const auto reads = [&](const graph::Node& late, const graph::Node& early) {
      return std::any_of(late.inputs.begin(), late.inputs.end(),
                         [&](const Value& v) { return v.buffer == early.outputs[0].buffer; });
    };
    std::vector<graph::Node>& nodes = state.graph.nodes;
    for (size_t n = 1; n < nodes.size(); ++n) {
      if (reads(nodes[n], nodes[n - 1])) return std::swap(nodes[n], nodes[n - 1]);
    }
  }
  if (form == Pass::Form::groups) state.groups.erase(state.groups.begin());
  if (form == Pass::Form::steps) state.steps.erase(state.steps.begin());
}

template <Pass::Form form>
void run_broken(PassState& state) {
  broken.run(state);
  broken.has_run = true;
  break_state(state, form);
}

TEST(Pipeline, ACheckNamesThePassThatBrokeSomething) {
  const graph::BuildOptions options = every_pass();
  for (size_t at = 0; at < graph::pipeline().size(); ++at) {
    std::vector<Pass> passes(graph::pipeline().begin(), graph::pipeline().end());
    broken = {.run = passes[at].run};
    passes[at].run = passes[at].form == Pass::Form::graph    ? run_broken<Pass::Form::graph>
                     : passes[at].form == Pass::Form::groups ? run_broken<Pass::Form::groups>
                                                             : run_broken<Pass::Form::steps>;
    PassState state{.graph = sample_graph(), .options = options};
    const std::string message = internal_error_of([&] { graph::run_passes(state, passes, true); });
    EXPECT_TRUE(broken.has_run) << passes[at].name;
    EXPECT_NE(message.find(fmt::format("after pass {} of f: ", passes[at].name)), std::string::npos) << message;
  }
}

class DumpVariables {
 public:
  DumpVariables(const std::string& folder, const char* passes) {
    setenv("TUTTI_COMPILE_DUMP", folder.c_str(), 1);
    setenv("TUTTI_COMPILE_DUMP_PASSES", passes, 1);
  }
  ~DumpVariables() {
    unsetenv("TUTTI_COMPILE_DUMP");
    unsetenv("TUTTI_COMPILE_DUMP_PASSES");
  }
};

// The stages that were dumped, in their order.
std::string stages_in(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path().stem().string());
  std::sort(files.begin(), files.end());
  std::string stages;
  for (const std::string& file : files) stages += file.substr(file.find_last_of('-') + 1) + " ";
  return stages;
}

TEST(Pipeline, DumpsThePassesThatAreNamed) {
  const testing::TemporaryFolder folder;
  const graph::BuildOptions options = every_pass();
  PassState state{.graph = sample_graph(), .options = options};
  const DumpVariables variables(folder.path(), "merge_equal,fuse,make_steps");
  graph::run_passes(state);
  EXPECT_EQ(stages_in(folder.path()), "captured merge_equal simplified fuse make_steps steps ");
}

TEST(Pipeline, AnUnknownPassToDumpIsRefusedWithTheNearestName) {
  const testing::TemporaryFolder folder;
  const graph::BuildOptions options = every_pass();
  PassState state{.graph = sample_graph(), .options = options};
  const DumpVariables variables(folder.path(), "merge_equals");
  const std::string message = message_of([&] { graph::run_passes(state); });
  EXPECT_NE(message.find("did you mean 'merge_equal'"), std::string::npos) << message;
}

}  // namespace
}  // namespace tutti
