// Steps that packaged calls report, and the threads that they use.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/package/support/packaged_cases.h"
#include "tutti/deploy/package_state.h"
#include "tutti/deploy/tutti_profile.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/trace/trace_recorder.h"

namespace tutti {
namespace {

using package_test::Block;
using package_test::for_this_processor;
using package_test::values;

struct Steps {
  std::vector<std::string> kernels, ops, lines;
  int64_t total_ns = 0;
};

void add_step(const tutti_step* step, void* context) {
  auto& steps = *static_cast<Steps*>(context);
  EXPECT_EQ(step->struct_size, sizeof(tutti_step));
  EXPECT_GE(step->ns, 0);
  EXPECT_GE(step->begin_ns, 0);
  steps.kernels.emplace_back(step->kernel);
  steps.ops.emplace_back(step->ops);
  steps.lines.emplace_back(step->line);
  steps.total_ns += step->ns;
}

// The ids and lines of what this thread runs in fn(), as a trace has them.
template <class Fn>
Steps traced(Fn fn) {
  const auto session = TraceRecorder::process().open({.filter = TraceFilter::this_thread, .memory = false}, nullptr);
  fn();
  Steps steps;
  for (const auto& thread : TraceRecorder::process().close(session).threads) {
    if (thread.log->thread() != trace_thread_id()) continue;
    for (int64_t i = 0; i < thread.size; ++i) {
      const TraceEvent& event = (*thread.log)[i];
      if (event.kernel == nullptr) continue;
      const KernelInfo& info = event.kernel->info;
      const auto& stack = info.stack.empty() && event.context.place ? event.context.place->stack : info.stack;
      steps.kernels.push_back(info.kernel_id);
      steps.lines.push_back(stack.empty() ? "" : stack.front());
    }
  }
  return steps;
}

struct OpenedBlock {
  OpenedBlock() {
    package(folder / "block", block, for_this_processor("block"), x);
    tutti_open_options options{};
    options.struct_size = sizeof options;
    options.threads = 1;
    EXPECT_EQ(tutti_package_open((folder / "block").c_str(), &options, &opened), TUTTI_OK);
  }
  ~OpenedBlock() { tutti_package_close(opened); }
  tutti_code run() {
    tutti_tensor in = {x.raw_data(), TUTTI_F32, 3, {2, 4, 16}}, out = {y.raw_data(), TUTTI_F32, 3, {2, 4, 16}};
    return tutti_package_run(opened, &in, 1, &out, 1);
  }
  const Block block;
  const testing::TemporaryFolder folder;
  const Tensor x = values(2, {2, 4, 16}), y = Tensor::empty({2, 4, 16});
  tutti_package* opened = nullptr;
};

TEST(PackageProfile, StepsHaveTheIdsOfTheCompiledFunction) {
  OpenedBlock f;
  Steps steps;
  ASSERT_EQ(tutti_package_set_profile(f.opened, add_step, &steps), TUTTI_OK);
  ASSERT_EQ(f.run(), TUTTI_OK) << tutti_last_error()->text;
  expect_same_bits(f.y, f.block(f.x));
  const auto compiled = compile(f.block);
  compiled(f.x);
  const Steps live = traced([&] { compiled(f.x); });
  EXPECT_EQ(steps.kernels, live.kernels);
  EXPECT_EQ(steps.lines, live.lines);
  EXPECT_GT(steps.kernels.size(), 5u);
  EXPECT_NE(std::find(steps.ops.begin(), steps.ops.end(), "sdpa"), steps.ops.end());
}

TEST(PackageProfile, IsOverWhenItIsTakenAway) {
  OpenedBlock f;
  Steps steps;
  ASSERT_EQ(tutti_package_set_profile(f.opened, add_step, &steps), TUTTI_OK);
  ASSERT_EQ(f.run(), TUTTI_OK);
  const size_t once = steps.kernels.size();
  ASSERT_EQ(f.run(), TUTTI_OK);
  EXPECT_EQ(steps.kernels.size(), 2 * once);
  ASSERT_EQ(tutti_package_set_profile(f.opened, nullptr, nullptr), TUTTI_OK);
  ASSERT_EQ(f.run(), TUTTI_OK);
  EXPECT_EQ(steps.kernels.size(), 2 * once);
  EXPECT_FALSE(TraceRecorder::is_on());
}

// When the profile is taken away, no call uses its memory any more.
TEST(PackageProfile, IsTakenAwayWhileCallsRun) {
  OpenedBlock f;
  std::atomic<bool> stops = false;
  std::thread caller([&] {
    while (!stops) EXPECT_EQ(f.run(), TUTTI_OK);
  });
  const auto count = [](const tutti_step*, void* seen) { ++*static_cast<int64_t*>(seen); };
  for (int i = 0; i < 300; ++i) {
    auto seen = std::make_unique<int64_t>(0);
    EXPECT_EQ(tutti_package_set_profile(f.opened, count, seen.get()), TUTTI_OK);
    if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    EXPECT_EQ(tutti_package_set_profile(f.opened, nullptr, nullptr), TUTTI_OK);
    const int64_t at_end = *seen;
    std::this_thread::yield();
    EXPECT_EQ(*seen, at_end);
  }
  stops = true;
  caller.join();
}

// Observers are called when the call is over: they may run ops, and read the state.
TEST(PackageProfile, ObserversMayWorkWithTheState) {
  const testing::TemporaryFolder folder;
  const Tensor w = values(1, {8});
  PackageOptions options = for_this_processor("f");
  options.state = {{"w", w}};
  package(folder / "f", [&](const Tensor& x) { return sum(add_(w, x)); }, options, values(2, {8}));
  const auto opened = deploy::Package::open(folder / "f");
  const auto state = opened->new_state();
  int seen = 0;
  opened->set_observer(std::make_shared<const deploy::StepObserver>([&](const deploy::StepTime&) {
    EXPECT_EQ(erfinv(state->read("w")).extents(), (Extents{8}));
    ++seen;
  }));
  opened->run(*state, {{values(2, {8})}});
  EXPECT_GT(seen, 0);
}

// The steps of a call are those of its thread alone.
TEST(PackageProfile, CallsOfSeveralThreadsDoNotMix) {
  OpenedBlock f;
  static thread_local int64_t seen = 0;
  const auto count = [](const tutti_step*, void*) { ++seen; };
  ASSERT_EQ(tutti_package_set_profile(f.opened, count, nullptr), TUTTI_OK);
  ASSERT_EQ(f.run(), TUTTI_OK);
  const int64_t once = seen;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      const Tensor y = Tensor::empty({2, 4, 16});
      tutti_tensor in = {f.x.raw_data(), TUTTI_F32, 3, {2, 4, 16}}, out = {y.raw_data(), TUTTI_F32, 3, {2, 4, 16}};
      for (int i = 0; i < 20; ++i) EXPECT_EQ(tutti_package_run(f.opened, &in, 1, &out, 1), TUTTI_OK);
      EXPECT_EQ(seen, 20 * once);
    });
  }
  for (std::thread& t : threads) t.join();
}

TEST(PackageThreadsOption, IsCheckedAndKeepsTheBits) {
  OpenedBlock f;
  for (const int32_t threads : {0, 2, 5}) {
    tutti_open_options options{};
    options.struct_size = sizeof options;
    options.threads = threads;
    tutti_package* other = nullptr;
    ASSERT_EQ(tutti_package_open((f.folder / "block").c_str(), &options, &other), TUTTI_OK);
    std::swap(f.opened, other);
    ASSERT_EQ(f.run(), TUTTI_OK);
    std::swap(f.opened, other);
    expect_same_bits(f.y, f.block(f.x), fmt::format("{} threads", threads));
    tutti_package_close(other);
  }
  tutti_open_options options{};
  tutti_package* other = nullptr;
  EXPECT_EQ(tutti_package_open((f.folder / "block").c_str(), &options, &other), TUTTI_USAGE) << "no struct_size";
  options.struct_size = sizeof options;
  options.threads = -1;
  EXPECT_EQ(tutti_package_open((f.folder / "block").c_str(), &options, &other), TUTTI_USAGE);
  EXPECT_EQ(other, nullptr);
}

}  // namespace
}  // namespace tutti
