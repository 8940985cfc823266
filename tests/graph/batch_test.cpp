// Kernels that share a launch: which may, equal bits for every number of threads, what traces and errors say.
#include "tutti/plan/passes/batch.h"

#include <gtest/gtest.h>

#include "tests/graph/support/same.h"
#include "tutti/core/error.h"
#include "tutti/graph/compile.h"
#include "tutti/ops.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/thread_pool.h"
#include "tutti/runtime/trace/profiler.h"

namespace tutti {
namespace {

using graph_test::expect_same;
using graph_test::values;

struct Threads {
  explicit Threads(int n) : before(RankContext::current().pool().threads()) { RankContext::current().set_threads(n); }
  ~Threads() { RankContext::current().set_threads(before); }
  const int before;
};

using Tensors = std::vector<Tensor>;

Tensors arguments() {
  Tensors list;
  for (int i = 0; i < 12; ++i) list.push_back(values({i % 4 == 0 ? 300 : 3, 70 * i + 1}, static_cast<uint64_t>(i)));
  return list;
}

// One kernel per argument: elements, rows, columns.
Tensors one_each(const Tensors& list) {
  Tensors out;
  for (size_t i = 0; i < list.size(); ++i) {
    const Tensor& x = list[i];
    out.push_back(i % 3 == 0 ? tanh(mul(x, 2.0)) : i % 3 == 1 ? softmax(x, -1) : sum(x, {.dims = {0}}));
  }
  return out;
}

TEST(Batch, KernelsThatNeedNothingOfEachOtherAreOneLaunch) {
  const Tensors expected = one_each(arguments());
  for (const int threads : {1, 2, 3}) {
    const Threads scope(threads);
    const auto f = compile(one_each);
    const Tensors got = f(arguments());
    for (size_t i = 0; i < got.size(); ++i) expect_same(got[i], expected[i]);
    EXPECT_EQ(f.statistics().last.kernels, 12) << f.explain();
    EXPECT_EQ(f.statistics().last.launches, 1) << f.explain();
    EXPECT_NE(f.explain().find("launch of 12 kernels"), std::string::npos) << f.explain();
  }
  const auto apart = compile(one_each, {.batch = false});
  apart(arguments());
  EXPECT_EQ(apart.statistics().last.launches, 12);
}

TEST(Batch, KernelsThatNeedEachOtherAreNot) {
  const auto fn = [](const Tensor& x) {
    const Tensor y = sum(x, {.dims = {0}});  // a kernel over columns keeps to itself
    return sum(mul(y, y), {.dims = {0}});
  };
  const auto f = compile(fn);
  expect_same(f(values({40, 50}, 1)), fn(values({40, 50}, 1)));
  EXPECT_EQ(f.statistics().last.launches, f.statistics().last.kernels) << f.explain();
  EXPECT_GT(f.statistics().last.kernels, 1);
}

TEST(Batch, AWriteDoesNotShareALaunchWithAReadOfTheSameElements) {
  const auto fn = [](const Tensor& x, const Tensor& y) {
    const Tensor before = sum(x, {.dims = {0}});
    add_(x, 1.0);
    add_(y, 1.0);
    return before;
  };
  const auto f = compile(fn);
  const Tensor a = values({60, 70}, 1), b = values({9}, 2), c = values({60, 70}, 1), d = values({9}, 2);
  expect_same(f(a, b), fn(c, d));
  expect_same(a, c);
  expect_same(b, d);
  EXPECT_EQ(f.statistics().last.launches, 2) << f.explain();
}

TEST(Batch, PartsOfOneBufferThatDoNotMeetShareALaunch) {
  const auto fn = [](const Tensor& flat) {
    for (int64_t i = 0; i < 5; ++i) mul_(slice(flat, 0, 10 * i, 10 * i + 8 + i), 2.0);  // the last two meet at 40
  };
  const auto f = compile(fn);
  const Tensor a = values({60}, 1), b = values({60}, 1);
  f(a), fn(b);
  expect_same(a, b);
  EXPECT_EQ(f.statistics().last.launches, 2) << f.explain();
}

TEST(Batch, AnErrorNamesTheOpThatReportsIt) {
  const auto fn = [](const Tensor& a, const Tensor& b, const Tensor& c) {
    return Tensors{add(a, 1), floordiv(b, c), exp(c)};
  };
  const auto f = compile(fn, {.fuse = false});
  const Tensor a = cast(values({5}, 1), DType::i64), b = cast(values({6}, 1), DType::i64),
               c = full({6}, 0.0, DType::i64);
  try {
    f(a, b, c);
    FAIL() << f.explain();
  } catch (const IntegerDivideByZero& e) {
    EXPECT_NE(std::string(e.what()).find("floordiv"), std::string::npos) << e.what();
  }
  EXPECT_LT(f.statistics().last.launches, f.statistics().last.kernels) << f.explain();
}

TEST(Batch, TracesHaveOneEventThatNamesAllOps) {
  const auto f = compile(one_each);
  f(arguments());
  Profiler profiler;
  ASSERT_TRUE(profiler.start({.filter = TraceFilter::this_thread, .memory = false}).ok());
  f(arguments());
  profiler.stop();
  const KernelInfo* info = nullptr;
  int events = 0;
  for (const TraceHarvest::Thread& thread : profiler.trace().threads) {
    for (int64_t i = 0; i < thread.size; ++i) {
      if ((*thread.log)[i].kernel == nullptr || (*thread.log)[i].kernel->info.graph_key == "eager") continue;
      info = &(*thread.log)[i].kernel->info;
      ++events;
    }
  }
  ASSERT_EQ(events, 1);
  EXPECT_NE(info->kernel_id.find("12_kernels"), std::string::npos) << info->kernel_id;
  int sums = 0;
  for (const KernelOp& op : info->ops) sums += op.name == "sum";
  EXPECT_EQ(sums, 4);
  EXPECT_GT(info->bytes, 300.0 * 281 * 4);
}

}  // namespace
}  // namespace tutti
