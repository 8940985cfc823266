// Events of eager ops and their kernels.
#include "tutti/ops/engine/kernel_trace.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/sort.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/trace/profiler.h"

namespace tutti {
namespace {

// The events of this thread while `body` runs, but for memory.
template <class Body>
std::vector<TraceEvent> events_of(Body body) {
  Profiler profiler;
  EXPECT_TRUE(profiler.start({.filter = TraceFilter::this_thread, .memory = false}).ok());
  body();
  profiler.stop();
  std::vector<TraceEvent> events;
  for (const TraceHarvest::Thread& thread : profiler.trace().threads) {
    for (int64_t i = 0; i < thread.size; ++i) events.push_back((*thread.log)[i]);
  }
  return events;
}

TEST(KernelTrace, AGeneratedKernelStandsInsideItsOp) {
  const Tensor a = ones({3, 100}), b = ones({3, 100});
  const std::vector<TraceEvent> events = events_of([&] { add(a, b); });
  ASSERT_EQ(events.size(), 2u);
  const TraceEvent &kernel = events[0], &op = events[1];
  EXPECT_EQ(op.category, TraceCategory::op);
  EXPECT_STREQ(op.name, "add");
  EXPECT_EQ(kernel.category, TraceCategory::kernel);
  EXPECT_TRUE(op.begin_ns <= kernel.begin_ns && kernel.end_ns <= op.end_ns);
  ASSERT_NE(kernel.kernel, nullptr);
  EXPECT_EQ(kernel.kernel->info.kernel_id.substr(0, 4), "add_");
  ASSERT_EQ(kernel.kernel->info.ops.size(), 1u);
  EXPECT_EQ(kernel.kernel->info.ops[0].name, "add");
  EXPECT_EQ(kernel.kernel->info.choice.substr(0, 10), "generated ");
  EXPECT_EQ(kernel.bytes, 3 * 300 * 4);
  EXPECT_EQ(kernel.flops, 300);
}

TEST(KernelTrace, OneKernelHasOneIdWhateverTheSize) {
  const std::vector<TraceEvent> events = events_of([&] {
    exp(ones({7}));
    exp(ones({900}));
    exp(transpose(ones({8, 9}), 0, 1));
  });
  std::vector<const TraceKernel*> kernels;
  for (const TraceEvent& e : events) {
    if (e.kernel && e.kernel->info.ops[0].name == "exp") kernels.push_back(e.kernel);
  }
  ASSERT_EQ(kernels.size(), 3u);
  EXPECT_EQ(kernels[0], kernels[1]);
}

TEST(KernelTrace, AMatrixProductSaysItsWayAndItsWork) {
  const std::vector<TraceEvent> events = events_of([] { matmul(ones({64, 32}), ones({32, 16})); });
  const TraceEvent* gemm = nullptr;
  for (const TraceEvent& e : events) {
    if (e.category == TraceCategory::extern_call) gemm = &e;
  }
  ASSERT_NE(gemm, nullptr);
  EXPECT_EQ(gemm->flops, 2.0 * 64 * 32 * 16);
  EXPECT_EQ(gemm->bytes, 4.0 * (64 * 32 + 32 * 16 + 64 * 16));
  EXPECT_EQ(gemm->kernel->info.choice.substr(0, 10), "tree gemm ") << gemm->kernel->info.choice;
  EXPECT_NE(gemm->kernel->info.choice.find(" f32, tiles "), std::string::npos) << gemm->kernel->info.choice;
}

TEST(KernelTrace, OtherExternKernelsAreEventsToo) {
  const std::vector<TraceEvent> events = events_of([] { sort(ones({5})); });
  int found = 0;
  for (const TraceEvent& e : events)
    found += e.category == TraceCategory::extern_call && e.kernel->info.choice == "hand-written";
  EXPECT_GE(found, 1);
}

TEST(KernelTrace, AViewRunsNoKernel) {
  const Tensor a = ones({3, 4});
  const std::vector<TraceEvent> events = events_of([&] { transpose(a, 0, 1); });
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].category, TraceCategory::op);
}

TEST(KernelTrace, AnOpThatThrowsClosesItsEvents) {
  const std::vector<TraceEvent> events = events_of(
      [] { EXPECT_THROW(floordiv(Tensor::of<int64_t>({1}), Tensor::of<int64_t>({0})), IntegerDivideByZero); });
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().category, TraceCategory::op);
  EXPECT_GE(events.back().end_ns, events.back().begin_ns);
}

TEST(KernelTrace, ProfilingDoesNotChangeResults) {
  const Tensor x = exp(full({1000}, 0.3));
  Tensor y;
  events_of([&] { y = exp(full({1000}, 0.3)); });
  EXPECT_EQ(std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())), 0);
}

}  // namespace
}  // namespace tutti
